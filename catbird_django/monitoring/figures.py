"""Figures about tasks, runs and workers, each of a bounded number of rows."""

from __future__ import annotations

from typing import TypeVar

from django.db.models import BigIntegerField, Count, Func, Min, Model, QuerySet, Value

from catbird_django.models import Breaker, Task, TaskRun, Worker
from catbird_django.monitoring.queries import flow_runs, task_runs

M = TypeVar("M", bound=Model)

RECENT = 10_000
"""Of how many of the newest runs a task's figures are made."""


def recent_counts(task: Task) -> dict[str, int]:
    """How many of the newest `RECENT` runs are this task's, by status; a status without any is left out."""
    counted = among_newest(task_runs(), RECENT).filter(task=task).values("status").annotate(count=Count("pk"))
    return {row["status"]: row["count"] for row in counted.order_by("status")}


def recent_flow_counts(flow_name: str) -> dict[str, int]:
    """How many of the newest `RECENT` runs of flows are this flow's, by status; a status without any is left out."""
    recent = among_newest(flow_runs(), RECENT).filter(flow_name=flow_name)
    counted = recent.values("status").annotate(count=Count("pk"))
    return {row["status"]: row["count"] for row in counted.order_by("status")}


def open_or_closed(task: Task) -> Breaker | None:
    """The circuit breaker of a task; None while it has seen no failure."""
    return Breaker.objects.using(task_runs().db).filter(task_id=task.pk).first()


def held_by(worker: Worker, *, limit: int) -> list[TaskRun]:
    """The runs in the hands of this worker; the lease that ends next comes first."""
    # In the order of the index of held runs: no other plan is worth considering.
    held = task_runs().filter(worker=worker, lease_until__isnull=False).order_by("lease_until")
    return list(held.prefetch_related("task")[:limit])


def among_newest(runs: QuerySet[M], count: int) -> QuerySet[M]:
    """Keep those that are among the newest `count` of all runs of their kind."""
    everything: QuerySet[M] = QuerySet(runs.model, using=runs.db)
    newest = everything.order_by("-pk").values("pk")[:count]
    oldest = newest.aggregate(oldest=Min("pk"))["oldest"]
    return runs.none() if oldest is None else runs.filter(pk__gte=oldest)


class _RowEstimate(Func):
    """How many rows the last VACUUM or ANALYZE saw in a table; -1 before the first."""

    template = "(SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(%(expressions)s))"
    output_field = BigIntegerField()


def estimated_count(rows: QuerySet[M]) -> int | None:
    """About how many rows the model's table has; None when PostgreSQL has not looked yet."""
    table = Value(rows.model._meta.db_table)  # noqa: SLF001 - documented by Django
    # A query needs a row to come from; one of the table's own will do, and without any there is nothing to estimate.
    newest: QuerySet[M] = QuerySet(rows.model, using=rows.db).order_by("-pk")
    for (count,) in newest.values_list(_RowEstimate(table))[:1]:
        return int(count) if count > 0 else None
    return 0
