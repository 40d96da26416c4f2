"""The flows that are run. Every engine has them in its own terms; what counts is how often handlers are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

FAN_OUT = 100


@dataclass(frozen=True, slots=True)
class Shape:
    """A flow, what its measures are called, and how many steps a run with so many items has."""

    name: str
    title: str
    steps: Callable[[int], int]


LINEAR = Shape("linear", "linear", lambda _: 3)
DIAMOND = Shape("diamond", "diamond", lambda _: 4)
# One step that makes a list, one piece of work for each of its elements, one step that takes all results.
FANOUT = Shape("fanout", f"1 → {FAN_OUT} → 1", lambda items: items + 2)
MAP = Shape("map", "map of 10 000", lambda items: items + 2)
LARGE_MAP = Shape("map", "map of 100 000", lambda items: items + 2)
