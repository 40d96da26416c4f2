"""`sql/doctor.sql`, called from Python."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from catbird_django.engine.call import Function

DOCTOR = Function(
    "cb_doctor",
    lease="interval",
    sweep="interval",
    worker_ttl="interval",
    patience="interval",
    is_notifying="boolean",
    limit="integer",
)

LIMIT = 100  # findings of one check


class Finding(NamedTuple):
    """Something that should not be, and what to do about it."""

    check_id: str
    severity: str
    """`error` or `warning`."""
    subject: str
    run_kind: str
    """Empty when it is about no run."""
    run_id: int | None
    message: str
    advice: str


def examine(
    *, lease: timedelta, sweep: timedelta, worker_ttl: timedelta, patience: timedelta, is_notifying: bool, using: str
) -> list[Finding]:
    """Look for everything that should not be; errors first, at most `LIMIT` of each check."""
    rows = DOCTOR.rows(
        using,
        lease=lease,
        sweep=sweep,
        worker_ttl=worker_ttl,
        patience=patience,
        is_notifying=is_notifying,
        limit=LIMIT,
    )
    return [Finding(*row) for row in rows]
