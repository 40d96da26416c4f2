"""What a scenario is: a function whose name is a sentence, the fault it makes, and what proves that it happened."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.chaos.rounds import Round


@dataclass(frozen=True, slots=True)
class Scenario:
    """One fault, and a function that makes it happen."""

    name: str
    play: Callable[[Round], None]
    fires: tuple[str, ...]
    """What must have happened at least once, or the round is void: a fault that did not happen proves nothing."""
    is_alone: bool
    """Whether it happens to the whole server, so that no other round can be played meanwhile."""

    @property
    def sentence(self) -> str:
        return self.name.replace("_", " ")


class Skipped(Exception):
    """The machine cannot make this fault happen; the message says why."""


class Broken(AssertionError):
    """Something that must be true after a fault is not."""


SCENARIOS: dict[str, Scenario] = {}


def scenario(*fires: str, alone: bool = False) -> Callable[[Callable[[Round], None]], Callable[[Round], None]]:
    """Enter a function as a scenario that has happened only if all of `fires` was seen."""

    def enter(play: Callable[[Round], None]) -> Callable[[Round], None]:
        SCENARIOS[play.__name__] = Scenario(play.__name__, play, fires, alone)
        return play

    return enter


def all_scenarios() -> dict[str, Scenario]:
    """Every scenario, by name, in the order of their modules."""
    package = importlib.import_module("tests.chaos.scenarios")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    return SCENARIOS
