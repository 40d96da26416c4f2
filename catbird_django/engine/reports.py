"""`sql/reports.sql`, called from Python."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from catbird_django.engine.call import Function, columns
from catbird_django.engine.items import ItemDelivery
from catbird_django.engine.steps import AnyDelivery, StepDelivery
from catbird_django.engine.tasks import Delivery, JsonText
from catbird_django.statuses import ReportVerdict

_PROGRESS = {"delivery_tokens": "uuid[]", "progress": "jsonb[]", "notify": "boolean"}
_LINES = {
    "delivery_tokens": "uuid[]",
    "attempts": "integer[]",
    "levels": "text[]",
    "messages": "text[]",
    "ages": "interval[]",
}

REPORT_TASKS = Function("cb_report_tasks", run_ids="bigint[]", **_PROGRESS)
REPORT_STEPS = Function("cb_report_steps", step_run_ids="bigint[]", **_PROGRESS)
REPORT_ITEMS = Function("cb_report_items", item_ids="bigint[]", **_PROGRESS)
LOG_TASKS = Function("cb_log_tasks", run_ids="bigint[]", **_LINES)
LOG_STEPS = Function("cb_log_steps", step_run_ids="bigint[]", **_LINES)
LOG_ITEMS = Function("cb_log_items", item_ids="bigint[]", **_LINES)

MAX_LINES = 1000
"""How many lines the log of a run has, at most; the last says that it is full."""


class LogLine(NamedTuple):
    """A line for the log of a claimed run."""

    delivery: AnyDelivery
    attempt: int
    level: str
    message: str
    age: timedelta
    """How long ago it was said."""


def report_tasks(progress: Sequence[tuple[Delivery, JsonText]], *, notify: bool, using: str) -> list[ReportVerdict]:
    """Store how far these runs are; say of each, in order, whether it counted."""
    run_ids, tokens = columns([delivery for delivery, _ in progress], 2)
    texts = [text for _, text in progress]
    rows = REPORT_TASKS.rows(using, run_ids=run_ids, delivery_tokens=tokens, progress=texts, notify=notify)
    return [ReportVerdict(verdict) for _, verdict in rows]


def report_steps(progress: Sequence[tuple[StepDelivery, JsonText]], *, notify: bool, using: str) -> list[ReportVerdict]:
    """Store how far these steps are; say of each, in order, whether it counted."""
    run_ids, tokens = columns([delivery for delivery, _ in progress], 2)
    texts = [text for _, text in progress]
    rows = REPORT_STEPS.rows(using, step_run_ids=run_ids, delivery_tokens=tokens, progress=texts, notify=notify)
    return [ReportVerdict(verdict) for _, verdict in rows]


def report_items(progress: Sequence[tuple[ItemDelivery, JsonText]], *, notify: bool, using: str) -> list[ReportVerdict]:
    """Store how far these items are; say of each, in order, whether it counted."""
    item_ids, tokens = columns([delivery for delivery, _ in progress], 2)
    texts = [text for _, text in progress]
    rows = REPORT_ITEMS.rows(using, item_ids=item_ids, delivery_tokens=tokens, progress=texts, notify=notify)
    return [ReportVerdict(verdict) for _, verdict in rows]


def log_tasks(lines: Sequence[LogLine], *, using: str) -> list[ReportVerdict]:
    """Write these lines to the logs of their runs; say what became of each, in order."""
    rows = LOG_TASKS.rows(using, run_ids=[line.delivery.run_id for line in lines], **_said(lines))
    return [ReportVerdict(verdict) for _, verdict in rows]


def log_steps(lines: Sequence[LogLine], *, using: str) -> list[ReportVerdict]:
    """Write these lines to the logs of their step runs; say what became of each, in order."""
    rows = LOG_STEPS.rows(using, step_run_ids=[line.delivery.run_id for line in lines], **_said(lines))
    return [ReportVerdict(verdict) for _, verdict in rows]


def log_items(lines: Sequence[LogLine], *, using: str) -> list[ReportVerdict]:
    """Write these lines to the logs of their items; say what became of each, in order."""
    rows = LOG_ITEMS.rows(using, item_ids=[line.delivery.run_id for line in lines], **_said(lines))
    return [ReportVerdict(verdict) for _, verdict in rows]


def _said(lines: Sequence[LogLine]) -> dict[str, list[Any]]:
    return {
        "delivery_tokens": [line.delivery.delivery_token for line in lines],
        "attempts": [line.attempt for line in lines],
        "levels": [line.level for line in lines],
        "messages": [line.message for line in lines],
        "ages": [line.age for line in lines],
    }
