"""`sql/tick.sql`, called from Python."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from catbird_django.engine.call import Function
from catbird_django.failpoints import before_commit

TICK = Function("cb_tick", worker_id="bigint", hold="interval", limit="integer", cancel_grace="interval")
WAKE_TICK = Function("cb_wake_tick")


class Tick(NamedTuple):
    """What one round of upkeep did."""

    is_elected: bool
    queues: Sequence[str]
    """Queues that have due work now and had not before."""
    next_due_in: timedelta | None
    """When the next run is due; for who is not elected, when the lease may be taken."""
    is_full: bool
    """Whether there may be more to do at once."""
    lost_count: int
    dead_rows: int
    """Dead rows among the runs, as far as the statistics know; 0 for who is not elected."""


def tick(worker_id: int, *, hold: timedelta, limit: int, cancel_grace: timedelta, using: str) -> Tick:
    """Do one round of upkeep, if this worker is elected to it."""
    with before_commit("in-sweep", using):
        [row] = TICK.rows(using, worker_id=worker_id, hold=hold, limit=limit, cancel_grace=cancel_grace)
    is_elected, queues, seconds, *rest = row
    return Tick(is_elected, queues, None if seconds is None else timedelta(seconds=seconds), *rest)


def wake_tick(*, using: str) -> None:
    """Tell the worker that does the upkeep that a run may be due earlier than it knows."""
    WAKE_TICK.rows(using)
