"""How long the worker waits for an answer of the database, before it takes the connection for dead (W5)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta

Calling = Callable[[], AbstractContextManager[None]]
"""What a part enters for as long as it calls the database: it bounds how long each call may take."""

LONGEST = 20.0  # seconds: with the poll before it, a silent connection is noticed within half a minute


def patience_of_calls(lease: timedelta) -> float:
    """Seconds that a claim, a settlement or the upkeep may take: what is held must not get lost meanwhile."""
    return min(max(lease.total_seconds() * 2 / 3, 5.0), LONGEST)


def patience_of_renewals(lease: timedelta) -> float:
    """Seconds that renewing leases may take: there must be time for another try, on a new connection."""
    return min(max(lease.total_seconds() / 3, 1.0), LONGEST)
