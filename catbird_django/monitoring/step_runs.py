"""The steps of a run of a flow, with what they have received and returned, for a page."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import F

from catbird_django.models import SignalDelivery, StepInput, StepRun
from catbird_django.monitoring.clock import DatabaseNow
from catbird_django.monitoring.payloads import with_signal_text, with_step_text, with_value_text
from catbird_django.statuses import FlowStatus, StepStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from catbird_django.models import FlowRun

MAX_SIGNALS = 200
OPEN_TO_SIGNALS = (StepStatus.WAITING_FOR_DEPENDENCIES, StepStatus.WAITING_FOR_SIGNAL)


@dataclass(frozen=True, slots=True)
class Received:
    """What a step has received from another: its text, or None when that one was skipped, or is a map."""

    source: str
    text: str | None
    item_count: int | None = None
    """Of a map: how many items' outputs it is."""


def steps_of(run: FlowRun, *, with_payloads: bool = False) -> list[Any]:
    """The steps of a run in the order of its flow; `read_at` is the database's time."""
    steps = StepRun.objects.using(run._state.db).filter(flow_run=run)  # noqa: SLF001 - documented by Django
    steps = steps.defer("output", "error").select_related("step", "worker").annotate(read_at=DatabaseNow())
    return list((with_step_text(steps) if with_payloads else steps).order_by("step__position"))


def received_by(steps: Sequence[StepRun]) -> dict[int, list[Received]]:
    """What each of these steps has received, by their ids (F5)."""
    received: defaultdict[int, list[Received]] = defaultdict(list)
    if not steps:
        return received
    inputs = StepInput.objects.using(steps[0]._state.db).filter(step_run__in=[step.pk for step in steps])  # noqa: SLF001
    rows: Iterable[Any] = with_value_text(inputs.defer("value")).order_by("step_run", "place")
    for row in rows:
        value = (None, None) if row.is_skipped else (row.value_text, row.item_count)
        received[row.step_run_id].append(Received(row.source, *value))
    return received


def signals_of(run: FlowRun) -> list[SignalDelivery]:
    """The newest signals that were given to a run, or refused, oldest first."""
    given = SignalDelivery.objects.using(run._state.db).filter(flow_run_id=run.pk).defer("payload")  # noqa: SLF001
    return list(with_signal_text(given).order_by("-pk")[:MAX_SIGNALS])[::-1]


def open_to_signals(run: FlowRun) -> list[StepRun]:
    """The steps of a run that a signal would count for, in the order of the flow."""
    if run.status != FlowStatus.STARTED:
        return []
    steps = StepRun.objects.using(run._state.db).filter(  # noqa: SLF001
        flow_run=run, status__in=OPEN_TO_SIGNALS, signaled_at__isnull=True, step__signal__isnull=False
    )
    return list(steps.select_related("step").order_by(F("step__position")))
