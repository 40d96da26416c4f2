"""What the doctor finds in a database, with the settings of this project."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby

from catbird_django.conf import get_settings
from catbird_django.engine.doctor import LIMIT, Finding, examine
from catbird_django.engine.schema import expected_version, installed_version, require_current_schema

PATIENCE = timedelta(minutes=1)  # how long due work may wait beside an idle worker

ERROR = "error"


def diagnose(*, using: str) -> list[Finding]:
    """Examine a database; raise SchemaMismatch when its SQL is older than this code."""
    require_current_schema(using=using)
    settings = get_settings()
    found = examine(
        lease=settings.lease,
        sweep=settings.sweep_interval,
        worker_ttl=settings.worker_ttl,
        patience=max(PATIENCE, settings.lease + settings.sweep_interval + settings.idle_poll_interval),
        is_notifying=settings.notify,
        using=using,
    )
    return found + _newer_sql(using)


def _newer_sql(using: str) -> list[Finding]:
    """In the middle of a deploy that is as it should be; afterwards this process was forgotten."""
    installed, expected = installed_version(using=using), expected_version()
    if installed == expected:
        return []
    message = f"the database has the SQL of {installed}, and this code calls that of {expected}"
    return [Finding("sql_version", "warning", "SQL", "", None, message, "Deploy the code that belongs to it here too.")]


def by_check(findings: Sequence[Finding]) -> list[list[Finding]]:
    """The findings, one list per check, in the order in which they came."""
    return [list(group) for _, group in groupby(findings, key=lambda finding: finding.check_id)]


def is_cut_off(group: Sequence[Finding]) -> bool:
    """Whether there may be more findings of this check than were returned."""
    return len(group) >= LIMIT
