"""What a handler may raise to say how its attempt should end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NoReturn

from catbird_django.definitions.retry import as_delay
from catbird_django.errors import CatbirdError


class Retry(CatbirdError):
    """The attempt has failed; try again after a while, if the task has retries left."""

    def __init__(self, message: str = "asked to be tried again", *, after: float | timedelta | None = None) -> None:
        super().__init__(message)
        self.delay = None if after is None else as_delay(after)


class Cancel(CatbirdError):
    """This run shall not go on: it is canceled, for a reason, and not tried again."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Skip(CatbirdError):
    """This step has nothing to do: it is skipped, for a reason. Only in steps with `may_skip=True`."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class CompleteEarly(CatbirdError):
    """The whole flow has its output already: its run is completed, and its other work is canceled."""

    def __init__(self, output: Any, reason: str = "") -> None:
        super().__init__(reason)
        self.output = output
        self.reason = reason


def complete_early(output: Any, reason: str = "") -> NoReturn:
    """End the run of the flow here and now, with this output; leaves the handler, by an exception.

    The first step to do so wins. Steps that wait or are queued are canceled, and running ones are told.
    """
    raise CompleteEarly(output, reason)


class CancelRequested(BaseException):
    """The run was canceled while its handler ran. Not an Exception: a handler must not swallow it by accident."""


class Snooze(CatbirdError):
    """Not now: give the run back and try again after a while. No failure is counted."""

    def __init__(self, delay: float | timedelta) -> None:
        super().__init__(f"snoozed for {delay}")
        self.delay = as_delay(delay)
