"""How things stand: workers, and what is queued, running and failing, by queue and task.

Answers within a bounded time, whatever the size of the tables. Due runs are counted in the claim index, of each queue
and task up to `COUNT_LIMIT`; delayed and held ones in their partial indexes, up to `COUNT_LIMIT` in all. Ended runs
have no index: those of the last hour are looked for among the newest `FAILED_REACH` runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Any

from django.db.models import Case, Count, F, Q, QuerySet, Sum, Value, When

from catbird_django.engine.tasks import LaneHead, find_task_lanes
from catbird_django.models import Breaker, TaskRun
from catbird_django.models.tasks import SUSPECT
from catbird_django.monitoring.clock import DatabaseNow
from catbird_django.monitoring.figures import among_newest
from catbird_django.monitoring.flow_figures import COUNT_LIMIT, FlowFigures, flow_figures
from catbird_django.monitoring.queries import task_runs, tasks, workers
from catbird_django.monitoring.worker_states import WorkerState
from catbird_django.statuses import TaskStatus

FAILED_REACH = 100_000
FAILED_WITHIN = timedelta(hours=1)

Place = tuple[str, int]
"""A queue and the id of a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFigures:
    """The worker processes that are alive, and those that fell silent without saying that they stop."""

    alive: int
    sleeping: int
    slots: int
    silent: int
    draining: int
    listening: int
    abandoned: int
    """Handlers that outlived their timeout and could not be stopped, of workers that are alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFigures:
    """The runs of one task in one queue. `COUNT_LIMIT` queued ones means: at least so many."""

    queue: str
    task: str
    queued: int
    delayed: int
    retrying: int
    """Of the delayed, those that wait for another attempt."""
    started: int
    canceling: int
    completed: int
    failed: int
    oldest_due_age: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBreaker:
    """A task that rests after too many failures."""

    task: str
    failures: int
    open_for: timedelta
    """How much longer; negative when a run is about to be tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Everything `catbird_status` shows."""

    workers: WorkerFigures
    tasks: Sequence[TaskFigures]
    flows: Sequence[FlowFigures]
    breakers: Sequence[OpenBreaker]

    @property
    def oldest_due_age(self) -> timedelta | None:
        return max((row.oldest_due_age for row in self.tasks if row.oldest_due_age is not None), default=None)


def read_status(*, using: str) -> Status:
    """Read how things stand in this database, now."""
    return Status(
        workers=_worker_figures(using),
        tasks=list(_task_figures(using)),
        flows=list(flow_figures(using, ended_within=FAILED_WITHIN)),
        breakers=list(_open_breakers(using)),
    )


def _open_breakers(using: str) -> Iterator[OpenBreaker]:
    rows = Breaker.objects.using(using).filter(open_until__isnull=False).annotate(left=F("open_until") - DatabaseNow())
    for name, failures, left in rows.order_by("task__name").values_list("task__name", "failure_count", "left"):
        yield OpenBreaker(task=name, failures=failures, open_for=left)


def _worker_figures(using: str) -> WorkerFigures:
    alive = Q(state=WorkerState.ALIVE)
    counted = workers(using=using).aggregate(
        alive=Count("pk", filter=alive),
        sleeping=Count("pk", filter=alive & Q(sleeping_since__isnull=False)),
        slots=Sum("slots", filter=alive, default=0),
        silent=Count("pk", filter=Q(state=WorkerState.SILENT)),
        draining=Count("pk", filter=alive & Q(draining_since__isnull=False)),
        listening=Count("pk", filter=alive & Q(is_listening=True)),
        abandoned=Sum("abandoned_count", filter=alive, default=0),
    )
    return WorkerFigures(**counted)


def _task_figures(using: str) -> Iterator[TaskFigures]:
    names = dict(tasks(using=using).values_list("pk", "name"))
    heads = find_task_lanes(list(names), None, using=using)
    queued = _count_due(heads, using)
    waiting = task_runs(using=using).queued().filter(visible_at__isnull=False).order_by("visible_at")
    delayed, retrying = _count_places(waiting, failure_count__gt=0)
    held = task_runs(using=using).filter(lease_until__isnull=False).order_by("lease_until")
    started, canceling = _count_places(held, status=TaskStatus.CANCELING)
    completed, failed = _count_ended(using, TaskStatus.COMPLETED), _count_ended(using, TaskStatus.FAILED)
    ages = _oldest_ages(heads, using)
    places = set(chain(queued, delayed, started, completed, failed))
    for queue, task_id in sorted(places, key=lambda place: (place[0], names.get(place[1], ""))):
        place = (queue, task_id)
        yield TaskFigures(
            queue=queue,
            task=names.get(task_id, f"#{task_id}"),
            queued=queued[place],
            delayed=delayed[place],
            retrying=retrying[place],
            started=started[place],
            canceling=canceling[place],
            completed=completed[place],
            failed=failed[place],
            oldest_due_age=ages.get(place),
        )


def _count_due(heads: Iterable[LaneHead], using: str) -> Counter[Place]:
    counted: Counter[Place] = Counter()
    for place, is_suspect in {(_place(head), head.is_suspect) for head in heads}:
        counted[place] += _count_due_at(place, using, is_suspect=is_suspect)
    return counted


def _count_due_at(place: Place, using: str, *, is_suspect: bool) -> int:
    queue, task_id = place
    due = TaskRun.objects.using(using).queued().filter(queue=queue, task_id=task_id, visible_at__isnull=True)
    # One of two partial indexes: with neither condition, PostgreSQL can use neither.
    due = due.filter(lost_count__gte=SUSPECT) if is_suspect else due.filter(lost_count__lt=SUSPECT)
    # In the order of the claim index, so that it is entered there and left at the limit.
    return due.order_by("queue", "task_id", "priority", "pk")[:COUNT_LIMIT].count()


def _count_places(runs: QuerySet[TaskRun], **special: Any) -> tuple[Counter[Place], Counter[Place]]:
    """Count runs by place; and, among those counted, the special ones."""
    is_special = Case(When(**special, then=True), default=False)
    rows = list(runs.annotate(is_special=is_special).values_list("queue", "task_id", "is_special")[:COUNT_LIMIT])
    return Counter(row[:2] for row in rows), Counter(row[:2] for row in rows if row[2])


def _count_ended(using: str, status: TaskStatus) -> Counter[Place]:
    since = DatabaseNow() - Value(FAILED_WITHIN)
    ended = among_newest(task_runs(using=using).filter(status=status, finished_at__gte=since), FAILED_REACH)
    counted = ended.values("queue", "task_id").annotate(count=Count("pk")).order_by()
    return Counter({(row["queue"], row["task_id"]): row["count"] for row in counted})


def _oldest_ages(heads: Sequence[LaneHead], using: str) -> Mapping[Place, timedelta]:
    of_heads = TaskRun.objects.using(using).filter(pk__in=[head.head_id for head in heads])
    age_of = dict(of_heads.annotate(age=DatabaseNow() - F("queued_at")).values_list("pk", "age"))
    ages: dict[Place, timedelta] = {}
    for head in heads:
        # A head that was purged meanwhile has no age.
        ages[_place(head)] = max(ages.get(_place(head), timedelta(0)), age_of.get(head.head_id, timedelta(0)))
    return ages


def _place(head: LaneHead) -> Place:
    return head.queue, head.handler_id
