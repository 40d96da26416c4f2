"""The demo's short log: each run once, as it finishes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from catbird_django.models import TaskRun

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_OUTCOME = 60


def latest_run_id() -> int:
    """Give the id that all runs enqueued from now on are above."""
    return TaskRun.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def finished_runs(*, after: int) -> Iterator[TaskRun | None]:
    """Give each run above that id once, when it has finished, and None whenever there is nothing new."""
    seen: set[int] = set()
    while True:
        finished = TaskRun.objects.finished().select_related("task").filter(pk__gt=after).exclude(pk__in=seen)
        for run in finished.order_by("finished_at", "pk"):
            seen.add(run.pk)
            yield run
        yield None


def describe(run: TaskRun) -> str:
    """Tell in one line how a run ended."""
    outcome = json.dumps(run.output) if run.error is None else f"{run.error['type']}: {run.error['message']}"
    if len(outcome) > LONGEST_OUTCOME:
        outcome = f"{outcome[:LONGEST_OUTCOME]}..."
    return f"{run.task.name} #{run.pk} {run.get_status_display()}: {outcome}"
