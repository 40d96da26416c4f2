"""`sql/housekeeping.sql`, called from Python; and VACUUM, which no function can do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from django.db import connections

from catbird_django.engine.call import Function
from catbird_django.engine.silence import under_way

KEEP_HOUSE = Function("cb_keep_house", worker_ttl="interval", keep_stopped="interval")
DEAD_ROWS = Function("cb_dead_rows")

# TRUNCATE would wait for everybody's locks, and a table that is being vacuumed anyway need not be vacuumed twice.
VACUUM = "VACUUM (TRUNCATE off, SKIP_LOCKED) cb_task_runs, cb_step_runs, cb_step_readiness, cb_items"
LONGEST_VACUUM = 600.0  # seconds: what takes longer is left to autovacuum


class House(NamedTuple):
    """What was found while keeping house."""

    lost_workers: Sequence[str]
    """Workers that were not heard of and are no longer on record, as host:pid."""
    old_transactions: int
    oldest_transaction: timedelta | None


class DeadRows(NamedTuple):
    """The dead rows among the runs, and whether we may remove them."""

    dead_rows: int
    may_vacuum: bool


def keep_house(*, worker_ttl: timedelta, keep_stopped: timedelta, using: str) -> House:
    """Remove the rows of workers that are gone, and look around."""
    [row] = KEEP_HOUSE.rows(using, worker_ttl=worker_ttl, keep_stopped=keep_stopped)
    return House(*row)


def count_dead_rows(*, using: str) -> DeadRows:
    """Ask the statistics for the dead rows among the runs."""
    [row] = DEAD_ROWS.rows(using)
    return DeadRows(*row)


def vacuum_runs(*, using: str) -> None:
    """Make the room of dead rows free. Not in a transaction; a role that may not do it changes nothing."""
    connection = connections[using]
    with under_way(lambda: connection.connection, within=LONGEST_VACUUM), connection.cursor() as cursor:
        cursor.execute(VACUUM)
