"""How flows stand: how many runs of each go on, wait for people, or have ended a short while ago.

Made of the newest `FLOW_REACH` runs, so it answers within a bounded time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, F, Q, Value

from catbird_django.conf import get_settings
from catbird_django.models import FlowRun, StepRun
from catbird_django.monitoring.clock import DatabaseNow
from catbird_django.monitoring.figures import among_newest
from catbird_django.statuses import FlowStatus, StepStatus

FLOW_REACH = 20_000
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
    signals = _waiting_for_people(using)
    for row in counted.order_by("flow_name"):
        figures = FlowFigures(
            flow=row["flow_name"],
            started=row["started"],
            ending=row["ending"],
            waiting_for_people=signals.get(row["flow_name"], 0),
            completed=row["completed"],
            failed=row["failed"],
        )
        if figures.started or figures.ending or figures.completed or figures.failed:
            yield figures


def _waiting_for_people(using: str) -> dict[str, int]:
    """How many steps of each flow wait for a signal."""
    runs = among_newest(FlowRun.objects.using(using).filter(status=FlowStatus.STARTED), FLOW_REACH)
    waiting = StepRun.objects.using(using).filter(status=StepStatus.WAITING_FOR_SIGNAL, flow_run__in=runs.values("pk"))
    counted = waiting.values(flow=F("flow_run__flow_name")).annotate(count=Count("pk")).order_by()
    return {row["flow"]: row["count"] for row in counted}
