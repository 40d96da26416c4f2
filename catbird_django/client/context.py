"""What a handler can know about its own run, and say about it: the `ctx` parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Final, Protocol

from catbird_django.client.interrupts import CancelRequested
from catbird_django.client.options import storable

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
MAX_PROGRESS_MESSAGE = 500
MAX_LOG_MESSAGE = 4000


class Reporter(Protocol):
    """Where a context's words go: to the database by way of the worker, or first to the worker from another process."""

    def is_canceled(self) -> bool: ...

    def progress(self, done: float, total: float | None, message: str) -> None: ...

    def log(self, level: str, message: str) -> None: ...

    def heartbeat(self) -> None: ...


class NobodyListens:
    """The reporter of a context that no worker made, as in a unit test of a handler."""

    def is_canceled(self) -> bool:
        return False

    def progress(self, done: float, total: float | None, message: str) -> None:
        pass

    def log(self, level: str, message: str) -> None:
        pass

    def heartbeat(self) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The run that a handler is working on: what contexts of tasks and of steps share."""

    run_id: int
    queue: str
    attempt: int
    """1 for the first attempt; more after failures and lost workers."""
    headers: Mapping[str, Any]
    reporter: Reporter = field(default=NobodyListens(), repr=False)
    """Where what the handler says goes; not for handlers to call."""

    @property
    def is_canceled(self) -> bool:
        """Whether the run was canceled meanwhile. A sync handler that takes long should look now and then."""
        return self.reporter.is_canceled()

    def stop_if_canceled(self) -> None:
        """Leave the handler, by an exception, if the run was canceled meanwhile."""
        if self.is_canceled:
            raise CancelRequested

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far the run is. Shown live; of several in quick succession only the last may be. Cheap to call often.

        Leaves the handler, by an exception, if the run was canceled meanwhile. Raises ValueError for what is no amount.
        """
        self.stop_if_canceled()
        total = None if total is None else _amount("total", total)
        self.reporter.progress(_amount("done", done), total, _text(message, MAX_PROGRESS_MESSAGE))

    def log(self, message: str, *, level: str = "info") -> None:
        """Write a line to the run's log: at most 4 000 characters, and 1 000 lines a run; what is more is dropped.

        `level` is debug, info, warning or error. Leaves the handler, by an exception, if the run was canceled.
        """
        self.stop_if_canceled()
        if level not in LOG_LEVELS:
            raise ValueError(f"level must be one of {', '.join(LOG_LEVELS)}, not {level!r}")
        self.reporter.log(level, _text(message, MAX_LOG_MESSAGE))

    def heartbeat(self) -> None:
        """Say that the handler is alive, and leave it, by an exception, if the run was canceled meanwhile."""
        self.stop_if_canceled()
        self.reporter.heartbeat()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext(RunContext):
    """The run that a task's handler is working on."""

    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext(RunContext):
    """The flow run whose step a handler is working on: `run_id` is the flow run's."""

    flow: str
    step: str
    index: int | None = None
    """In a map: the place of the item in the list, from 0."""


def _amount(argument: str, value: Any) -> float:
    """A number that says how much, as plain Python has it; raise ValueError, naming the argument, for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{argument} must be a number, not {value!r}")
    try:
        amount = float(value)
    except OverflowError:  # a whole number beyond all floats
        amount = math.inf
    if not math.isfinite(amount) or amount < 0:
        raise ValueError(f"{argument} must be finite and at least 0, not {str(value)[:80]}")
    return int(value) if isinstance(value, Integral) else amount


def _text(message: object, limit: int) -> str:
    """A message as it can be stored: cut, and without what PostgreSQL's text cannot hold."""
    if not isinstance(message, str):
        raise ValueError(f"message must be text, not {type(message).__name__}")
    return storable(message[:limit])
