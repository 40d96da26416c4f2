"""The options of a task, as given to `@task(…)` and `Task(…)`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Protocol, TypedDict, get_args

from catbird_django.definitions.conditions import Condition, parse_condition
from catbird_django.definitions.names import check_name
from catbird_django.definitions.retry import Backoff, RetryPolicy, check_retry_policy
from catbird_django.errors import DefinitionError

ExceptionOption = type[BaseException] | tuple[type[BaseException], ...]
OnCancel = Literal["stop", "finish"]
Isolation = Literal["thread", "process"]
LONGEST = timedelta(days=3660)


class Named(Protocol):
    """A task, as far as another task that refers to it is concerned."""

    @property
    def name(self) -> str: ...


class TaskOptions(TypedDict, total=False):
    """Keyword arguments of every declaration of a task."""

    queue: str
    """The queue its runs go to; by default "default"."""
    condition: str
    """Runs whose input does not fulfil it are skipped, as in "input.amount gte 10"."""
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
    breaker: tuple[int, float]
    """After so many failures in a row, on all workers, it rests for so many seconds; then one run is tried."""
    on_fail: str | Named
    """The task that is run, with a `TaskFailure`, when a run has failed for good."""
    on_cancel: OnCancel
    """"finish" lets a started handler end, and its result counts; by default "stop"."""
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


def refuse_unknown_options(options: TaskOptions) -> None:
    """Raise TypeError, with a suggestion, for an option that does not exist."""
    known = TaskOptions.__annotations__
    for option in options.keys() - known.keys():
        close = difflib.get_close_matches(option, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f" (there are: {', '.join(known)})"
        raise TypeError(f"a task has no option {option!r}{hint}")


def retry_policy(options: TaskOptions) -> RetryPolicy:
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


def handler_options(options: TaskOptions) -> HandlerOptions:
    """The part of the options that says how a worker runs the handler."""
    return HandlerOptions(
        timeout=_duration("timeout", options.get("timeout")),
        isolation=_one_of("isolation", options.get("isolation", "thread"), get_args(Isolation)),
        concurrency=_count("concurrency", options.get("concurrency"), least=1),
        batch_size=_count("batch_size", options.get("batch_size"), least=0),
        breaker=_breaker(options.get("breaker")),
    )


def max_lost(options: TaskOptions) -> int | None:
    """How often a run may lose its worker; None for as often as the settings say."""
    return _count("max_lost", options.get("max_lost"), least=0)


def condition(options: TaskOptions) -> Condition | None:
    """What the input of a run must fulfil; None for nothing."""
    given = options.get("condition")
    return None if given is None else parse_condition(given, roots={"input"})


def on_fail(options: TaskOptions) -> str:
    """The name of the task to run when a run has failed; empty for none."""
    given = options.get("on_fail")
    if given is None:
        return ""
    return check_name(given if isinstance(given, str) else getattr(given, "name", given), "task")


def on_cancel(options: TaskOptions) -> OnCancel:
    """What a cancel does to a started handler."""
    chosen: OnCancel = _one_of("on_cancel", options.get("on_cancel", "stop"), get_args(OnCancel))
    return chosen


def retention(options: TaskOptions) -> timedelta | None:
    """How long finished runs are kept; None for as long as the settings say."""
    return _duration("retention", options.get("retention"))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _duration(option: str, value: object) -> timedelta | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LONGEST.total_seconds():
        value = timedelta(seconds=value)
    if not isinstance(value, timedelta) or not timedelta(0) < value <= LONGEST:
        raise DefinitionError(f"{option} must be more than 0 seconds, or such a timedelta, at most ten years")
    return value


def _count(option: str, value: object, *, least: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 10_000:
        raise DefinitionError(f"{option} must be a whole number from {least} to 10 000, not {value!r}")
    return value


def _one_of(option: str, value: Any, choices: tuple[Any, ...]) -> Any:
    if value not in choices:
        raise DefinitionError(f"{option} must be {' or '.join(map(repr, choices))}, not {value!r}")
    return value


def _breaker(value: object) -> Breaker | None:
    if value is None:
        return None
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise DefinitionError(f"breaker must be (failures in a row, seconds of rest), not {value!r}")
    failures, rest = _count("breaker's first part", value[0], least=1), _duration("breaker's second part", value[1])
    if failures is None or rest is None:
        raise DefinitionError(f"breaker must be (failures in a row, seconds of rest), not {value!r}")
    return Breaker(failures=failures, rest=rest)
