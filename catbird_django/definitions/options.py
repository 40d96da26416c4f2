"""The options of a task, as given to `@task(…)` and `Task(…)`; those about its handler, steps of flows share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Protocol, TypedDict, cast, get_args

from catbird_django.definitions.checked import checked_choice, checked_count, checked_duration
from catbird_django.definitions.conditions import Condition, parse_condition
from catbird_django.definitions.names import check_name
from catbird_django.definitions.retry import Backoff, RetryPolicy, check_retry_policy
from catbird_django.errors import DefinitionError

ExceptionOption = type[BaseException] | tuple[type[BaseException], ...]
OnCancel = Literal["stop", "finish"]
Isolation = Literal["thread", "process"]


class Named(Protocol):
    """A task or step, as far as another one that refers to it is concerned."""

    @property
    def name(self) -> str: ...


class WorkOptions(TypedDict, total=False):
    """Keyword arguments of everything that has a handler: how it is run, and what becomes of its failures."""

    max_retries: int
    """How often a failed run is tried again; by default 0."""
    backoff: Backoff
    """Shortest and longest wait before a retry, in seconds; or a function of the number of failures so far."""
    retry_on: ExceptionOption
    """Only these exceptions are worth a retry; by default every Exception."""
    no_retry_on: ExceptionOption
    """These exceptions are not worth a retry."""
    max_lost: int
    """How often a run may lose its worker before it fails; by default 5, or CATBIRD["MAX_LOST"]."""
    timeout: float | timedelta
    """How long one attempt may take; by default as long as it likes."""
    isolation: Isolation
    """"process" runs the handler in a process of its own, which can be killed; by default "thread"."""
    concurrency: int
    """How many runs of it one worker works on at the same time; by default as many as the worker has slots."""
    batch_size: int
    """At most how many runs of it a worker claims ahead of its free slots; by default CATBIRD["PREFETCH"]."""
    on_cancel: OnCancel
    """"finish" lets a started handler end, and its result counts; by default "stop"."""


class TaskOptions(WorkOptions, total=False):
    """Keyword arguments of every declaration of a task."""

    queue: str
    """The queue its runs go to; by default "default"."""
    condition: str
    """Runs whose input does not fulfil it are skipped, as in "input.amount gte 10"."""
    breaker: tuple[int, float]
    """After so many failures in a row, on all workers, it rests for so many seconds; then one run is tried."""
    on_fail: str | Named
    """The task that is run, with a `TaskFailure`, when a run has failed for good."""
    retention: float | timedelta
    """How long finished runs are kept, in seconds or as timedelta; by default CATBIRD["RETENTION"]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """When to stop trying for a while (T9)."""

    failures: int
    rest: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """How a worker runs the handler."""

    timeout: timedelta | None = None
    isolation: Isolation = "thread"
    concurrency: int | None = None
    batch_size: int | None = None
    breaker: Breaker | None = None

    def as_json(self) -> dict[str, Any]:
        """What is worth showing to people, without what is left at its default."""
        shown: dict[str, Any] = {
            "timeout": None if self.timeout is None else self.timeout.total_seconds(),
            "isolation": None if self.isolation == "thread" else self.isolation,
            "concurrency": self.concurrency,
            "batch_size": self.batch_size,
            "breaker": None if self.breaker is None else [self.breaker.failures, self.breaker.rest.total_seconds()],
        }
        return {name: value for name, value in shown.items() if value is not None}


def refuse_unknown_options(given: Iterable[str], known: type, what: str) -> None:
    """Raise TypeError, with a suggestion, for an option that the TypedDict of known ones does not have."""
    names = known.__annotations__
    for option in sorted(set(given) - names.keys()):
        close = difflib.get_close_matches(option, names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f" (there are: {', '.join(names)})"
        raise TypeError(f"a {what} has no option {option!r}{hint}")


def retry_policy(options: WorkOptions) -> RetryPolicy:
    """The part of the options that says what happens after a failure."""
    defaults = RetryPolicy()
    return check_retry_policy(
        RetryPolicy(
            max_retries=options.get("max_retries", defaults.max_retries),
            backoff=options.get("backoff", defaults.backoff),
            retry_on=_as_tuple(options.get("retry_on", defaults.retry_on)),
            no_retry_on=_as_tuple(options.get("no_retry_on", defaults.no_retry_on)),
        )
    )


def handler_options(options: WorkOptions) -> HandlerOptions:
    """The part of the options that says how a worker runs the handler."""
    return HandlerOptions(
        timeout=checked_duration("timeout", options.get("timeout")),
        isolation=checked_choice("isolation", options.get("isolation", "thread"), get_args(Isolation)),
        concurrency=checked_count("concurrency", options.get("concurrency"), least=1),
        batch_size=checked_count("batch_size", options.get("batch_size"), least=0),
        breaker=_breaker(cast("TaskOptions", options).get("breaker")),  # steps have none
    )


def max_lost(options: WorkOptions) -> int | None:
    """How often a run may lose its worker; None for as often as the settings say."""
    return checked_count("max_lost", options.get("max_lost"), least=0)


def condition(options: TaskOptions) -> Condition | None:
    """What the input of a run must fulfil; None for nothing."""
    given = options.get("condition")
    return None if given is None else parse_condition(given, roots={"input"})


def on_fail(given: str | Named | None) -> str:
    """The name of the task to run when a run has failed; empty for none."""
    return "" if given is None else check_name(name_of(given), "task")


def name_of(given: object) -> object:
    """The name of a task or step that was given by name or as itself."""
    return given if isinstance(given, str) else getattr(given, "name", given)


def on_cancel(options: WorkOptions) -> OnCancel:
    """What a cancel does to a started handler."""
    chosen: OnCancel = checked_choice("on_cancel", options.get("on_cancel", "stop"), get_args(OnCancel))
    return chosen


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _breaker(value: object) -> Breaker | None:
    if value is None:
        return None
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise DefinitionError(f"breaker must be (failures in a row, seconds of rest), not {value!r}")
    failures = checked_count("breaker's first part", value[0], least=1)
    rest = checked_duration("breaker's second part", value[1])
    if failures is None or rest is None:
        raise DefinitionError(f"breaker must be (failures in a row, seconds of rest), not {value!r}")
    return Breaker(failures=failures, rest=rest)
