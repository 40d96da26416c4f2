"""What an `on_fail` task is told of the run that failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

I = TypeVar("I")  # noqa: E741 - as in Task[I, O]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """What went wrong at last."""

    type: str
    message: str
    traceback: str


@dataclass(frozen=True, kw_only=True)
class TaskFailure(Generic[I]):
    """A run that has failed for good: the input of the task named by `on_fail`.

    `TaskFailure[Order]` has the input as an Order; plain `TaskFailure` has it as JSON.
    """

    run_id: int
    task: str
    input: I
    error: RunFailure
    attempts: int
    """How often it was tried; 0 when its condition could not be decided."""
