"""`sql/flow_retention.sql`, called from Python."""

from __future__ import annotations

from datetime import timedelta

from catbird_django.engine.call import Function

APPLY = Function("cb_apply_flow_retention", retention="interval", after_id="bigint", limit="integer")


def apply_flow_retention(
    retention: timedelta | None, *, after_id: int, limit: int, using: str
) -> tuple[int, int | None]:
    """Look at the next flow runs after an id, and remove those whose flow's retention, or else this one, is over.

    Returns how many were removed, and the id to go on from; None when all that can be old enough were looked at.
    """
    [(removed, last_id)] = APPLY.rows(using, retention=retention, after_id=after_id, limit=limit)
    return removed, last_id
