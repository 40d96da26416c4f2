"""The options of flows and steps, as given to `Flow(…)`, `@flow.step(…)`, `@flow.map(…)` and `@flow.reduce(…)`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Literal, TypedDict, get_args

from catbird_django.definitions.checked import checked_choice, checked_count, checked_duration
from catbird_django.definitions.names import check_name
from catbird_django.definitions.options import Named, WorkOptions, name_of
from catbird_django.errors import DefinitionError

Names = Iterable[str | Named]
SkipPolicy = Literal["skip", "skip_downstream", "fail"]
ItemFailure = Literal["fail", "collect"]

MOST_ITEMS = 1_000_000_000


class FlowOptions(TypedDict, total=False):
    """Keyword arguments of `Flow`, besides its name and input."""

    description: str
    """What it is for, shown to people."""
    queue: str
    """The queue its steps' runs go to; by default "default"."""
    output: str | Named | Names
    """The steps whose output may be the flow's: that of the first that completed. By default the final ones."""
    output_required: bool
    """Whether a run whose output steps were all skipped has failed; by default it completes, with None."""
    on_fail: str | Named
    """The task that is run, with what failed, when a run has failed."""
    deadline: float | timedelta
    """A run that has not ended so many seconds after its start has failed."""
    retention: float | timedelta
    """How long finished runs are kept, in seconds or as timedelta; by default CATBIRD["RETENTION"]."""


class AnyStepOptions(WorkOptions, total=False):
    """Keyword arguments of every kind of step. Queue, priority, headers and tags are the run's (F20)."""

    depends_on: Names
    """The steps whose outputs the parameters take, in their order, where the parameters have other names."""
    after: Names
    """Steps that must have ended before, and whose output is not needed."""
    condition: str
    """Whether the step is run at all, as in "validate.total gt 1000 and not input.is_test"."""
    on_unmet: SkipPolicy
    """What follows from a condition that is not met: by default "skip"."""
    on_exhausted: SkipPolicy
    """What follows when the last attempt has failed: by default "fail"."""
    signal: Any
    """The type of the signal that the step waits for, or a `Signal` with more to say about it."""
    delay: float | timedelta
    """How long the step waits once everything it needs is there."""
    deadline: float | timedelta
    """A step that has not ended so many seconds after the flow's start fails."""


class StepOptions(AnyStepOptions, total=False):
    """Keyword arguments of `@flow.step`, besides its name."""

    may_skip: bool
    """Whether the handler may raise `Skip`."""
    inline: bool
    """Whether it is run in memory, together with the one step that it takes the output of."""
    atomic: bool
    """Whether what the handler writes to the database is committed together with its completion."""


class MapOptions(AnyStepOptions, total=False):
    """Keyword arguments of `@flow.map`, besides its name and `over`. Retries, timeout and the like are each item's."""

    atomic: bool
    """Whether what the handler writes to the database is committed together with the item's completion."""
    on_item_failure: ItemFailure
    """What follows from an item whose last attempt has failed: "collect" leaves an `ItemError` in its place; by default
    the step fails."""
    tolerate: int
    """So many items may fail, and leave an `ItemError` in their place; with one more the step fails."""


class ReduceOptions(AnyStepOptions, total=False):
    """Keyword arguments of `@flow.reduce`, besides its name, `over` and `initial`."""


def step_names(option: str, given: object) -> tuple[str, ...]:
    """The names of steps that were given by name or as themselves; raise DefinitionError, naming the option."""
    if isinstance(given, str) or hasattr(given, "name"):
        given = [given]
    if not isinstance(given, Iterable):
        raise DefinitionError(f"{option} must be a list of steps, not {given!r}")
    names = tuple(check_name(name_of(one), "step") for one in given)
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"{option} names {name!r} twice")
    return names


def skip_policy(option: str, given: object) -> SkipPolicy:
    """What follows from an unmet condition, or from the last failure."""
    chosen: SkipPolicy = checked_choice(option, given, get_args(SkipPolicy))
    return chosen


def max_failed_items(options: MapOptions) -> int | None:
    """How many items of a map may fail before it fails; None for all of them."""
    policy: ItemFailure = checked_choice(
        "on_item_failure", options.get("on_item_failure", "fail"), get_args(ItemFailure)
    )
    tolerated = checked_count("tolerate", options.get("tolerate"), least=1, most=MOST_ITEMS)
    if tolerated is None:
        return None if policy == "collect" else 0
    if "on_item_failure" in options:
        raise DefinitionError(
            "on_item_failure and tolerate exclude each other: with tolerate, more than so many fail it"
        )
    return tolerated


def timing(options: AnyStepOptions) -> tuple[timedelta | None, timedelta | None]:
    """The delay and the deadline of a step."""
    delay = checked_duration("delay", options.get("delay"))
    deadline = checked_duration("deadline", options.get("deadline"))
    if delay is not None and deadline is not None and delay >= deadline:
        raise DefinitionError("its delay is not shorter than its deadline, so it could only fail")
    return delay, deadline
