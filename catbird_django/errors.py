"""The CatbirdError family: every error that this package raises on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from catbird_django.statuses import SignalVerdict


class CatbirdError(Exception):
    """Base of all errors of this package."""


class DefinitionError(CatbirdError):
    """A task or flow is declared in a way that cannot work; the message says where and what to change.

    A flow is checked as a whole: `problems` has everything that is wrong with it, one text each.
    """

    def __init__(self, message: str, *, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems) or (message,)


class UnknownName(CatbirdError, LookupError):
    """No definition of that name is registered."""


class RunNotFound(CatbirdError, LookupError):
    """There is no run of that id in the database: it was never committed, or has been removed."""


class RunNotFinished(CatbirdError):
    """The run is still live, and only one that has ended can be run again."""


class InvalidOption(CatbirdError, ValueError):
    """An option of a run is out of range or contradicts another; the message names it."""


class PayloadError(CatbirdError, ValueError):
    """A value cannot be stored or read as the declared type.

    `path` names the place inside the value, as in `input.lines[2].price`.
    """

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class SchemaMismatch(CatbirdError):
    """The SQL functions in the database are missing or are not the ones this version calls: run `manage.py migrate`."""


class ReadinessOverflow(CatbirdError):
    """A step has met more requirements than it has, which cannot be; the transaction was undone."""


class InvalidArgument(CatbirdError, ValueError):
    """A SQL function was called with arguments it must refuse; nothing was written."""


class WaitTimeout(CatbirdError, TimeoutError):
    """The run did not finish in time; it goes on."""


class WaitInTransaction(CatbirdError):
    """An unfinished run was waited for inside a transaction, where it could never be seen to finish."""


class HandlerTimeout(CatbirdError, TimeoutError):
    """The handler took longer than its timeout. Raised inside it, wherever it is."""


class HandlerDied(CatbirdError):
    """The process that the handler ran in has died; the message says how."""


class RunError(CatbirdError):
    """A run ended without an output."""

    def __init__(self, message: str, *, run_id: int) -> None:
        super().__init__(message)
        self.run_id = run_id


class TaskFailed(RunError):
    """The task run failed; `error` has the type, message and traceback that the worker stored."""

    def __init__(self, message: str, *, run_id: int, error: dict[str, str]) -> None:
        super().__init__(message, run_id=run_id)
        self.error = error


class FlowFailed(RunError):
    """The flow run failed; `error` has the type, message and traceback of what failed, and in which `step`."""

    def __init__(self, message: str, *, run_id: int, error: dict[str, Any]) -> None:
        super().__init__(message, run_id=run_id)
        self.error = error


class RunCanceled(RunError):
    """The run was canceled."""


class RunSkipped(RunError):
    """The run was skipped: its condition was false."""


class RunExpired(RunError):
    """The run was not started, or as a flow not ended, before it expired."""


class SignalRefused(CatbirdError):
    """The signal changed nothing; `verdict` says why: duplicate, late, unknown step, malformed, …

    The refusal is on record, unless this error leaves the transaction that the call was made in.
    """

    def __init__(self, message: str, *, verdict: SignalVerdict) -> None:
        super().__init__(message)
        self.verdict = verdict
