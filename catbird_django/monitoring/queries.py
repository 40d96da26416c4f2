"""Tasks, task runs and workers as people look at them, and figures about them.

Nothing here reads a whole table: `cb_task_runs` may hold ten million rows. It is entered by its primary key or by one of
its partial indexes, and whatever cannot be answered that way looks at the newest rows only, and says so.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from django.db.models import Case, Count, F, Func, IntegerField, Min, Model, QuerySet, TextField, Value, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Left

from catbird_django.conf import get_settings
from catbird_django.models import Task, TaskRun, Worker
from catbird_django.monitoring.clock import DatabaseNow
from catbird_django.monitoring.worker_states import WorkerState
from catbird_django.statuses import TaskStatus

if TYPE_CHECKING:
    from catbird_django.models.tasks import TaskRunQuerySet

M = TypeVar("M", bound=Model)

HELD_STATUSES = frozenset({TaskStatus.STARTED, TaskStatus.CANCELING})
PAYLOAD_FIELDS = ("input", "output", "error", "headers")

RECENT = 10_000
"""How many of the newest runs a task's figures are made of."""

MAX_SHOWN_PAYLOAD = 200_000
"""How many characters of a payload are fetched for a page: an input written by plain SQL may have any size."""


def tasks() -> QuerySet[Task]:
    """All tasks, from the database that has catbird's tables."""
    return Task.objects.using(get_settings().database)


def task_runs() -> TaskRunQuerySet:
    """All task runs, without their payloads; `read_at` is the database's time."""
    runs = TaskRun.objects.using(get_settings().database)
    return runs.defer(*PAYLOAD_FIELDS).annotate(read_at=DatabaseNow())


def workers() -> QuerySet[Worker]:
    """All workers; `state` is a WorkerState by the database's clock, `read_at` its time."""
    silent_before = DatabaseNow() - Value(get_settings().worker_ttl)
    return Worker.objects.using(get_settings().database).annotate(
        read_at=DatabaseNow(),
        state=Case(
            When(stopped_at__isnull=False, then=Value(WorkerState.STOPPED)),
            When(seen_at__lt=silent_before, then=Value(WorkerState.SILENT)),
            default=Value(WorkerState.ALIVE),
            output_field=TextField(),
        ),
    )


def with_payload_text(runs: QuerySet[TaskRun]) -> QuerySet[TaskRun]:
    """Add input, output, headers and error as the database writes them: every digit kept, cut when very long."""
    return runs.annotate(
        input_text=_text_of("input"),
        output_text=_text_of("output"),
        headers_text=_text_of("headers"),
        error_text=_text_of("error"),
        **{f"error_{part}": _error_part(part) for part in ("type", "message", "traceback")},
    )


def with_schema_text(known: QuerySet[Task]) -> QuerySet[Task]:
    """Add the JSON schemas as text."""
    return known.annotate(input_schema_text=_text_of("input_schema"), output_schema_text=_text_of("output_schema"))


def _text_of(field: str) -> Left:
    return Left(Cast(field, TextField()), MAX_SHOWN_PAYLOAD + 1)


def _error_part(part: str) -> Left:
    return Left(KeyTextTransform(part, "error"), MAX_SHOWN_PAYLOAD + 1)


def of_task(runs: QuerySet[TaskRun], name: str) -> QuerySet[TaskRun]:
    """Keep the runs of the task of this name."""
    return runs.filter(task_id__in=list(tasks().filter(name=name).values_list("pk", flat=True)))


def of_status(runs: QuerySet[TaskRun], status: str) -> QuerySet[TaskRun]:
    """Keep the runs of this status."""
    if status in HELD_STATUSES:
        # Says nothing new, but names the condition of the index of held runs.
        runs = runs.filter(lease_until__isnull=False)
    return runs.filter(status=status)


def matching(runs: QuerySet[TaskRun], text: str) -> QuerySet[TaskRun]:
    """Keep the run of this id, or the runs of the tasks whose name begins so."""
    run_id = run_id_in(text)
    if run_id is not None:
        return runs.filter(pk=run_id)
    named = tasks().filter(name__startswith=text.strip().lower())
    return runs.filter(task_id__in=list(named.values_list("pk", flat=True)))


def run_id_in(text: str) -> int | None:
    """The run id that somebody typed; None when it is something else."""
    text = text.strip().removeprefix("#")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def is_found_by_index(*, status: str, text: str) -> bool:
    """Is a search of runs answered by an index, however old they are? Otherwise it walks back through the runs."""
    return status in HELD_STATUSES or run_id_in(text) is not None


def held_by(worker: Worker, *, limit: int) -> list[TaskRun]:
    """The runs in the hands of this worker, the next to lose its lease first."""
    # In the order of the index of held runs, so that no other plan is worth considering.
    return list(task_runs().filter(worker=worker, lease_until__isnull=False).order_by("lease_until")[:limit])


def recent_counts(task: Task) -> dict[str, int]:
    """How many of the newest `RECENT` runs are of this task, by status; statuses without any are left out."""
    counted = among_newest(task_runs(), RECENT).filter(task=task).values("status").annotate(count=Count("pk")).order_by()
    return {row["status"]: row["count"] for row in counted}


def among_newest(runs: QuerySet[TaskRun], count: int) -> QuerySet[TaskRun]:
    """Keep those of the newest `count` runs."""
    newest = task_runs().order_by("-pk").values("pk")[:count]
    oldest = newest.aggregate(oldest=Min("pk"))["oldest"]
    return runs.none() if oldest is None else runs.filter(pk__gte=oldest)


class _RowEstimate(Func):
    """How many rows the last ANALYZE or VACUUM saw in a table; -1 before the first."""

    template = "(SELECT reltuples::integer FROM pg_class WHERE oid = to_regclass(%(expressions)s))"
    output_field = IntegerField()


def estimated_count(rows: QuerySet[M]) -> int | None:
    """About how many rows the model's whole table has; None when PostgreSQL has not looked yet."""
    table = rows.model._meta.db_table
    # A query needs a row to come from: one of the table's own will do, and an empty table has nothing to estimate.
    estimate = rows.model._default_manager.using(rows.db).values_list(_RowEstimate(Value(table)))[:1]
    for (count,) in estimate:
        return int(count) if count > 0 else None
    return 0
