"""What happened to a run: the timestamps of its row and its events, merged (E1); and what its handler said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from catbird_django.models import Event, FlowRun, Item, RunLog, RunTag, TaskRun
from catbird_django.statuses import FlowStatus, ItemStatus, RunKind, TaskStatus

MAX_EVENTS = 200
MAX_LINES = 200
MAX_SUCCESSORS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One line of a run's history."""

    at: datetime
    what: Any
    """A word of the engine, or one of ours to be translated."""
    from_status: str = ""
    to_status: str = ""
    actor: str = ""
    details: Any = None
    step: str = ""
    """Of a run of a flow: the step that it is about, if it is about one."""


def history_of(run: TaskRun | Item) -> list[Happening]:
    """What happened to a run, oldest first: its ordinary life, and its newest `MAX_EVENTS` events."""
    events = [_of_event(event) for event in _newest(Event, run)[:MAX_EVENTS]]
    told = {(happening.at, happening.to_status) for happening in events}
    whole = _life_of_item(run) if isinstance(run, Item) else _life(run)
    life = [step for step in whole if (step.at, step.to_status) not in told]
    return sorted([*life, *reversed(events)], key=lambda happening: happening.at)


def _life_of_item(item: Item) -> Iterator[Happening]:
    yield Happening(at=item.queued_at, what=_("queued"), to_status=ItemStatus.QUEUED.value)
    if item.started_at is not None:
        yield Happening(at=item.started_at, what=_("first started"), to_status=ItemStatus.STARTED.value)
    if item.cancel_requested_at is not None and item.cancel_requested_at != item.finished_at:
        canceling = ItemStatus.CANCELING.value
        yield Happening(at=item.cancel_requested_at, what=_("cancel requested"), to_status=canceling)
    if item.finished_at is not None:
        yield Happening(at=item.finished_at, what=ItemStatus(item.status).label, to_status=item.status)


def _life(run: TaskRun) -> Iterator[Happening]:
    """What the row's own timestamps tell."""
    yield Happening(at=run.queued_at, what=_("queued"), to_status=TaskStatus.QUEUED.value)
    if run.started_at is not None:
        yield Happening(at=run.started_at, what=_("first started"), to_status=TaskStatus.STARTED.value)
    if run.cancel_requested_at is not None and run.cancel_requested_at != run.finished_at:
        canceling = TaskStatus.CANCELING.value
        yield Happening(
            at=run.cancel_requested_at, what=_("cancel requested"), to_status=canceling, actor=run.canceled_by
        )
    if run.finished_at is not None:
        actor = (
            run.canceled_by if run.status == TaskStatus.CANCELED and run.cancel_requested_at == run.finished_at else ""
        )
        yield Happening(at=run.finished_at, what=TaskStatus(run.status).label, to_status=run.status, actor=actor)


def history_of_flow(run: FlowRun, step_names: Mapping[int, str]) -> list[Happening]:
    """What happened to a run of a flow and to its steps, oldest first, with its newest `MAX_EVENTS` events."""
    events = Event.objects.using(run._state.db).filter(  # noqa: SLF001 - documented by Django
        Q(run_kind=RunKind.FLOW, run_id=run.pk) | Q(run_kind=RunKind.STEP, run_id__in=list(step_names))
    )
    happenings = [
        _of_event(event, step=step_names.get(event.run_id, "") if event.run_kind == RunKind.STEP else "")
        for event in events.order_by("-pk")[:MAX_EVENTS]
    ]
    started = Happening(at=run.started_at, what=_("started"), to_status="started", actor=run.started_by)
    ended = [one for one in happenings if one.step == "" and one.to_status == run.status]
    life = [started]
    if run.finished_at is not None and not ended:
        life.append(Happening(at=run.finished_at, what=FlowStatus(run.status).label, to_status=run.status))
    return sorted([*life, *reversed(happenings)], key=lambda happening: happening.at)


def _of_event(event: Event, *, step: str = "") -> Happening:
    return Happening(
        at=event.at,
        what=event.event,
        from_status=event.from_status,
        to_status=event.to_status,
        actor=event.actor,
        details=event.details,
        step=step,
    )


def log_of(run: TaskRun | Item) -> Sequence[RunLog]:
    """The newest lines of a run's log, oldest first: `MAX_LINES`, and one more if there are more."""
    return list(_newest(RunLog, run)[: MAX_LINES + 1])[::-1]


def tags_of(run: TaskRun | FlowRun) -> list[str]:
    """The tags of a run, in order."""
    kind = RunKind.FLOW if isinstance(run, FlowRun) else RunKind.TASK
    tags = RunTag.objects.using(run._state.db).filter(run_kind=kind, run_id=run.pk)  # noqa: SLF001
    return sorted(tags.values_list("tag", flat=True))


def successors_of(run: TaskRun) -> list[TaskRun]:
    """The first runs that were made from this one: `MAX_SUCCESSORS`, and one more if there are more."""
    made = TaskRun.objects.using(run._state.db).filter(origin_id=run.pk).order_by("pk")  # noqa: SLF001
    return list(made.only("id", "status", "role", "task_id")[: MAX_SUCCESSORS + 1])


def flow_successors_of(run: FlowRun) -> list[FlowRun]:
    """The first runs that were made from this one, as `successors_of` has them."""
    made = FlowRun.objects.using(run._state.db).filter(origin_id=run.pk).order_by("pk")  # noqa: SLF001
    return list(made.only("id", "status", "role")[: MAX_SUCCESSORS + 1])


def _newest(model: Any, run: TaskRun | Item) -> Any:
    rows = model.objects.using(run._state.db)  # noqa: SLF001 - documented by Django
    kind = RunKind.ITEM if isinstance(run, Item) else RunKind.TASK
    return rows.filter(run_kind=kind, run_id=run.pk).order_by("-pk")
