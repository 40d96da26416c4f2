"""`sql/retention.sql`, called from Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from catbird_django.engine.call import Function

PRUNE = Function("cb_prune_tasks", statuses="text[]", age="interval", after_id="bigint", limit="integer")
APPLY = Function("cb_apply_retention", retention="interval", after_id="bigint", limit="integer")

PASS = 10_000  # runs looked at in one transaction


def prune_tasks(statuses: Sequence[str], age: timedelta, *, using: str) -> Iterator[tuple[int, int]]:
    """Remove runs that ended that long ago, pass by pass; yield how many each pass removed, and up to which id."""
    after_id = 0
    while True:
        [(removed, last_id)] = PRUNE.rows(using, statuses=list(statuses), age=age, after_id=after_id, limit=PASS)
        if last_id is None:
            return
        yield removed, last_id
        after_id = last_id


def apply_retention(retention: timedelta | None, *, after_id: int, limit: int, using: str) -> tuple[int, int | None]:
    """Look at the next runs after an id, and remove those whose task's retention, or else this one, is over.

    Returns how many were removed, and the id to go on from; None when all that can be old enough were looked at.
    """
    [(removed, last_id)] = APPLY.rows(using, retention=retention, after_id=after_id, limit=limit)
    return removed, last_id
