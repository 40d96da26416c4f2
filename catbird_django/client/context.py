"""What a handler can know about its own run, and say about it: the `ctx` parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from catbird_django.client.interrupts import CancelRequested


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
class TaskContext:
    """The run that a task's handler is working on."""

    run_id: int
    task: str
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
        """Say how far the run is. Cheap to call often: of several in quick succession only the last may be shown."""
        self.stop_if_canceled()
        self.reporter.progress(done, total, message)

    def log(self, message: str, *, level: str = "info") -> None:
        """Write a line to the run's log. The log of a run is capped."""
        self.stop_if_canceled()
        self.reporter.log(level, message)

    def heartbeat(self) -> None:
        """Say that the handler is alive, and leave it, by an exception, if the run was canceled meanwhile."""
        self.stop_if_canceled()
        self.reporter.heartbeat()
