"""How flows stand: how many runs of each go on, wait for people, or have ended a short while ago.

Made of the newest `FLOW_REACH` runs, and of the indexes of work, so it answers within a bounded time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, F, Q, Value

from catbird_django.conf import get_settings
from catbird_django.models import FlowRun, StepRun
from catbird_django.monitoring.clock import DatabaseNow
from catbird_django.monitoring.figures import among_newest
from catbird_django.monitoring.flow_work import count_due_work, count_held_work
from catbird_django.statuses import FlowStatus, StepStatus

FLOW_REACH = 20_000
COUNT_LIMIT = 10_000
ENDING = (FlowStatus.CANCELING, FlowStatus.FAILING, FlowStatus.COMPLETING)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFigures:
    """The runs of one flow, whatever its version."""

    flow: str
    started: int
    ending: int
    """Their outcome is decided, and what still runs is being stopped."""
    waiting_for_people: int
    """Steps that wait for nothing but a signal."""
    due_work: int
    """Steps, and items of maps, that a worker may take now: of each step and queue, at most `COUNT_LIMIT`."""
    held_work: int
    """Steps and items in the hands of workers."""
    completed: int
    failed: int


def flow_figures(using: str | None = None, *, ended_within: timedelta) -> Iterator[FlowFigures]:
    """Count the runs of each flow that go on, or have ended within that time; a flow without any is left out."""
    using = using or get_settings().database
    newest = among_newest(FlowRun.objects.using(using), FLOW_REACH)
    lately = Q(finished_at__gte=DatabaseNow() - Value(ended_within))
    counted = newest.values("flow_name").annotate(
        started=Count("pk", filter=Q(status=FlowStatus.STARTED)),
        ending=Count("pk", filter=Q(status__in=ENDING)),
        completed=Count("pk", filter=lately & Q(status=FlowStatus.COMPLETED)),
        failed=Count("pk", filter=lately & Q(status=FlowStatus.FAILED)),
    )
    rows = {row["flow_name"]: row for row in counted.order_by()}
    signals = _waiting_for_people(using)
    due, held = count_due_work(limit=COUNT_LIMIT, using=using), count_held_work(limit=COUNT_LIMIT, using=using)
    for name in sorted({*rows, *due, *held}):
        row: Mapping[str, Any] = rows.get(name, {})
        figures = FlowFigures(
            flow=name,
            started=row.get("started", 0),
            ending=row.get("ending", 0),
            waiting_for_people=signals.get(name, 0),
            due_work=due[name],
            held_work=held[name],
            completed=row.get("completed", 0),
            failed=row.get("failed", 0),
        )
        if _has_something_to_tell(figures):
            yield figures


def _has_something_to_tell(one: FlowFigures) -> bool:
    return any((one.started, one.ending, one.due_work, one.held_work, one.completed, one.failed))


def _waiting_for_people(using: str) -> dict[str, int]:
    """How many steps of each flow wait for a signal."""
    runs = among_newest(FlowRun.objects.using(using).filter(status=FlowStatus.STARTED), FLOW_REACH)
    waiting = StepRun.objects.using(using).filter(status=StepStatus.WAITING_FOR_SIGNAL, flow_run__in=runs.values("pk"))
    counted = waiting.values(flow=F("flow_run__flow_name")).annotate(count=Count("pk")).order_by()
    return {row["flow"]: row["count"] for row in counted}
