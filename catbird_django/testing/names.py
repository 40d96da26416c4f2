"""Tasks and steps by the names that tests know them by: `charge`, `order.ship`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from catbird_django.client.flows import Step
from catbird_django.definitions.options import name_of
from catbird_django.definitions.registry import registry
from catbird_django.errors import UnknownName


def name_of_work(target: Any) -> str:
    """The name of a task or step that was given as itself or by name; raise UnknownName if nothing here has it."""
    names = _names_of_step(target) if isinstance(target, Step) else [str(name_of(target))]
    known = list(_known_names())
    for name in names:
        if name in known:
            return name
    raise UnknownName(f"no task or step {names[0]!r} has a handler here{_hint(names[0], known)}")


def _names_of_step(step: Step[Any, Any]) -> list[str]:
    """A step by flow and name. Steps do not know their flows."""
    return [
        f"{flow.name}.{step.name}"
        for flow in registry.flows.values()
        if not flow.problems() and flow.definition.steps.get(step.name) is step.definition
    ] or [step.name]


def _known_names() -> Iterable[str]:
    yield from (task.name for task in registry.tasks.values() if task.handler is not None)
    for flow in registry.flows.values():
        if not flow.problems():
            yield from (f"{flow.name}.{step}" for step in flow.definition.steps)


def _hint(name: str, known: list[str]) -> str:
    same_step = [other for other in known if other.endswith(f".{name}")]
    close = same_step or difflib.get_close_matches(name, known, n=1)
    if close:
        return f": did you mean {close[0]!r}?"
    return f" (there are: {', '.join(sorted(known))})" if known else ": there are none at all"
