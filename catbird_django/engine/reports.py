"""`sql/reports.sql`, called from Python."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from catbird_django.engine.call import Function, columns
from catbird_django.engine.tasks import Delivery, JsonText
from catbird_django.statuses import ReportVerdict

REPORT = Function("cb_report_tasks", run_ids="bigint[]", delivery_tokens="uuid[]", progress="jsonb[]", notify="boolean")
LOG = Function(
    "cb_log_tasks",
    run_ids="bigint[]",
    delivery_tokens="uuid[]",
    attempts="integer[]",
    levels="text[]",
    messages="text[]",
    ages="interval[]",
)

MAX_LINES = 1000
"""How many lines the log of a run has, at most; the last says that it is full."""


class LogLine(NamedTuple):
    """A line for the log of a claimed run."""

    delivery: Delivery
    attempt: int
    level: str
    message: str
    age: timedelta
    """How long ago it was said."""


def report_tasks(progress: Sequence[tuple[Delivery, JsonText]], *, notify: bool, using: str) -> list[ReportVerdict]:
    """Store how far these runs are; say of each, in order, whether it counted."""
    run_ids, tokens = columns([delivery for delivery, _ in progress], 2)
    texts = [text for _, text in progress]
    rows = REPORT.rows(using, run_ids=run_ids, delivery_tokens=tokens, progress=texts, notify=notify)
    return [ReportVerdict(verdict) for _, verdict in rows]


def log_tasks(lines: Sequence[LogLine], *, using: str) -> list[ReportVerdict]:
    """Write these lines to the logs of their runs; say what became of each, in order."""
    run_ids, tokens = columns([line.delivery for line in lines], 2)
    rows = LOG.rows(
        using,
        run_ids=run_ids,
        delivery_tokens=tokens,
        attempts=[line.attempt for line in lines],
        levels=[line.level for line in lines],
        messages=[line.message for line in lines],
        ages=[line.age for line in lines],
    )
    return [ReportVerdict(verdict) for _, verdict in rows]
