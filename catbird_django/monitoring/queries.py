"""Tasks, flows, their runs and workers as people look for them.

A table of runs may hold ten million rows, so it is entered by its primary key or by a partial index. What no index
answers is looked for among the newest rows only (see `paging.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from django.db.models import Case, QuerySet, TextField, Value, When

from catbird_django.conf import get_settings
from catbird_django.models import Flow, FlowRun, Item, RunTag, Task, TaskRun, Worker
from catbird_django.monitoring.clock import DatabaseNow
from catbird_django.monitoring.worker_states import WorkerState
from catbird_django.statuses import RunKind, TaskStatus

if TYPE_CHECKING:
    from catbird_django.models.flow_runs import FlowRunQuerySet
    from catbird_django.models.tasks import TaskRunQuerySet

R = TypeVar("R", TaskRun, FlowRun)

HELD_STATUSES = frozenset({TaskStatus.STARTED, TaskStatus.CANCELING})
PAYLOAD_FIELDS = ("input", "output", "error", "headers")

TAG_REACH = 100_000
"""Of how many runs with a tag, the newest, a list is made."""

LONGEST_ID = len(str(2**63 - 1))


def tasks(*, using: str | None = None) -> QuerySet[Task]:
    """All tasks, from the database that has catbird's tables unless another is named."""
    return Task.objects.using(using or get_settings().database)


def task_runs(*, using: str | None = None) -> TaskRunQuerySet:
    """All task runs, without their payloads; `read_at` is the database's time."""
    runs = TaskRun.objects.using(using or get_settings().database)
    return runs.defer(*PAYLOAD_FIELDS).annotate(read_at=DatabaseNow())


def flows(*, using: str | None = None) -> QuerySet[Flow]:
    """All versions of all flows."""
    return Flow.objects.using(using or get_settings().database)


def flow_runs(*, using: str | None = None) -> FlowRunQuerySet:
    """All runs of flows, without their payloads; `read_at` is the database's time."""
    runs = FlowRun.objects.using(using or get_settings().database)
    return runs.defer(*PAYLOAD_FIELDS).annotate(read_at=DatabaseNow())


def items(*, using: str | None = None) -> QuerySet[Item]:
    """All items of maps, without their payloads; `read_at` is the database's time."""
    found = Item.objects.using(using or get_settings().database)
    return found.defer("input", "output", "error").annotate(read_at=DatabaseNow())


def workers(*, using: str | None = None) -> QuerySet[Worker]:
    """All workers; `state` is a WorkerState by the database's clock, `read_at` is its time."""
    silent_before = DatabaseNow() - Value(get_settings().worker_ttl)
    return Worker.objects.using(using or get_settings().database).annotate(
        read_at=DatabaseNow(),
        state=Case(
            When(stopped_at__isnull=False, then=Value(WorkerState.STOPPED)),
            When(seen_at__lt=silent_before, then=Value(WorkerState.SILENT)),
            default=Value(WorkerState.ALIVE),
            output_field=TextField(),
        ),
    )


def of_status(runs: QuerySet[TaskRun], status: str) -> QuerySet[TaskRun]:
    """Keep the runs of this status."""
    if status in HELD_STATUSES:
        # Says nothing new, but is the condition of the index of held runs.
        runs = runs.filter(lease_until__isnull=False)
    return runs.filter(status=status)


def of_tasks(runs: QuerySet[TaskRun], named: QuerySet[Task]) -> QuerySet[TaskRun]:
    """Keep the runs of these tasks."""
    # Ids, not a join: tasks are few, and the plan of a page of runs should not depend on them.
    return runs.filter(task_id__in=list(named.values_list("pk", flat=True)))


def with_tag(runs: QuerySet[R], tag: str) -> QuerySet[R]:
    """Keep the runs that have this tag, as far as they are among the newest `TAG_REACH` of those."""
    kind = RunKind.FLOW if issubclass(runs.model, FlowRun) else RunKind.TASK
    tagged = RunTag.objects.using(runs.db).filter(run_kind=kind, tag=tag.replace("\x00", ""))
    return runs.filter(pk__in=tagged.order_by("-run_id").values("run_id")[:TAG_REACH])


def matching(runs: QuerySet[TaskRun], text: str) -> QuerySet[TaskRun]:
    """Keep the run of this id, or the runs of tasks whose name begins so."""
    run_id = run_id_in(text)
    if run_id is not None:
        return runs.filter(pk=run_id)
    return of_tasks(runs, tasks(using=runs.db).filter(name__startswith=text.strip().lower()))


def matching_flow_runs(runs: QuerySet[FlowRun], text: str) -> QuerySet[FlowRun]:
    """Keep the run of this id, or the runs of flows whose name begins so."""
    run_id = run_id_in(text)
    if run_id is not None:
        return runs.filter(pk=run_id)
    # Names, not a join: flows are few, and the plan of a page of runs should not depend on them.
    named = flows(using=runs.db).filter(name__startswith=text.strip().lower())
    return runs.filter(flow_name__in=list(named.values_list("name", flat=True).distinct()))


def run_id_in(text: str) -> int | None:
    """The run id that somebody typed; None when it is something else."""
    digits = text.strip().removeprefix("#")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= LONGEST_ID
    return int(digits) if is_number else None


def is_found_by_index(*, status: str, text: str, tag: str = "") -> bool:
    """Does an index find these runs, however old they are? If not, a page walks back through the newest."""
    return status in HELD_STATUSES or run_id_in(text) is not None or bool(tag)
