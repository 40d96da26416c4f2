"""The options of a task, as given to `@task(…)` and `Task(…)`."""

from __future__ import annotations

import difflib
from typing import Any, TypedDict

from catbird_django.definitions.retry import Backoff, RetryPolicy, check_retry_policy
from catbird_django.errors import DefinitionError

ExceptionOption = type[BaseException] | tuple[type[BaseException], ...]


class TaskOptions(TypedDict, total=False):
    """Keyword arguments of every declaration of a task."""

    queue: str
    """The queue its runs go to; by default "default"."""
    max_retries: int
    """How often a failed run is tried again; by default 0."""
    backoff: Backoff
    """Shortest and longest wait before a retry, in seconds; or a function of the number of failures so far."""
    retry_on: ExceptionOption
    """Only these exceptions are worth a retry; by default every Exception."""
    no_retry_on: ExceptionOption
    """These exceptions are not worth a retry."""
    max_lost: int
    """How often a run may lose its worker before it fails; by default 5."""


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


def max_lost(options: TaskOptions) -> int:
    """How often a run may lose its worker."""
    value = options.get("max_lost", 5)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 10_000:
        raise DefinitionError(f"max_lost must be a whole number from 0 to 10 000, not {value!r}")
    return value


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
