"""What a handler can know about its own run: the `ctx` parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from catbird_django.client.interrupts import CancelRequested


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """The run that a task's handler is working on."""

    run_id: int
    task: str
    queue: str
    attempt: int
    """1 for the first attempt; more after failures and lost workers."""
    headers: Mapping[str, Any]
    asks_to_stop: Callable[[], bool] = field(default=lambda: False, repr=False)
    """How the context finds out whether the run was canceled; use `is_canceled`."""

    @property
    def is_canceled(self) -> bool:
        """Whether the run was canceled meanwhile. A sync handler that takes long should look now and then."""
        return self.asks_to_stop()

    def stop_if_canceled(self) -> None:
        """Leave the handler, by an exception, if the run was canceled meanwhile."""
        if self.is_canceled:
            raise CancelRequested
