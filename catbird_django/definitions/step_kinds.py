"""The kinds of steps, and which options each of them has."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from catbird_django.definitions.flow_options import MapOptions, ReduceOptions, StepOptions
from catbird_django.definitions.options import refuse_unknown_options
from catbird_django.errors import DefinitionError


class StepKind(StrEnum):
    """What a step does with its handler."""

    STEP = "step"
    """Calls it once."""
    MAP = "map"
    """Calls it for each item of a list, each a piece of work of its own (F14)."""
    REDUCE = "reduce"
    """Calls it with one item of a list after the other, and with what it returned for the one before (F15)."""


OPTIONS: dict[StepKind, type] = {
    StepKind.STEP: StepOptions,
    StepKind.MAP: MapOptions,
    StepKind.REDUCE: ReduceOptions,
}

# Options that a step has, and why another kind does not.
_REASONS = {
    (StepKind.MAP, "may_skip"): "an item cannot be skipped, because its place in the output would be empty",
    (StepKind.MAP, "inline"): "each item is a piece of work that any worker may take",
    (StepKind.REDUCE, "may_skip"): "it has an output even without items: what it starts with",
    (StepKind.REDUCE, "inline"): "it may go over more items than one worker should hold on to",
    (StepKind.REDUCE, "atomic"): "it may go over more items than one transaction should last for",
}


def refuse_foreign_options(given: Iterable[str], kind: StepKind) -> None:
    """Raise TypeError for an option that no such step has; DefinitionError, with the reason, if other steps have it."""
    given = set(given)
    for option in sorted(given):
        if reason := _REASONS.get((kind, option)):
            raise DefinitionError(f"a {kind} has no option {option!r}: {reason}")
    refuse_unknown_options(given, OPTIONS[kind], kind)
