"""What a handler can know about its own run: the `ctx` parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """The run that a task's handler is working on."""

    run_id: int
    task: str
    queue: str
    attempt: int
    """1 for the first attempt; more after failures and lost workers."""
    headers: Mapping[str, Any]
