"""T15: old finished runs are removed, in batches, and only terminal rows."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.db.models.functions import Now

from catbird_django.engine import retention
from catbird_django.engine.retention import prune_tasks
from catbird_django.errors import InvalidArgument
from catbird_django.models import TaskRun
from tests.factories import TaskRunFactory

pytestmark = pytest.mark.django_db


def prune(*arguments: str) -> str:
    output = StringIO()
    call_command("catbird_prune", *arguments, stdout=output)
    return output.getvalue().strip()


def end_days_ago(run: TaskRun, days: int) -> None:
    TaskRun.objects.filter(pk=run.pk).update(finished_at=Now() - timedelta(days=days))


def test_only_what_ended_long_enough_ago_is_removed() -> None:
    old, new = TaskRunFactory(completed=True), TaskRunFactory(completed=True)
    end_days_ago(old, 31)
    end_days_ago(new, 29)

    assert prune("--older-than", "30d") == "removed 1 runs"
    assert list(TaskRun.objects.all()) == [new]


def test_live_runs_are_never_removed_however_old() -> None:
    queued, started = TaskRunFactory(), TaskRunFactory(started=True)
    TaskRun.objects.update(queued_at=Now() - timedelta(days=1000))

    prune("--older-than", "0s")

    assert set(TaskRun.objects.all()) == {queued, started}


def test_only_the_statuses_asked_for() -> None:
    completed, failed = TaskRunFactory(completed=True), TaskRunFactory(failed=True)
    for run in (completed, failed):
        end_days_ago(run, 10)

    assert prune("--older-than", "1d", "--status", "completed", "--format", "json") == '{"removed": 1}'
    assert list(TaskRun.objects.all()) == [failed]


def test_it_works_in_small_passes_and_reaches_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PASS", 3)
    runs = [TaskRunFactory(completed=number % 2 == 0) for number in range(10)]
    for run in runs[::2]:
        end_days_ago(run, 10)

    passes = list(prune_tasks(["completed"], timedelta(days=1), using="default"))

    assert len(passes) == 4
    assert sum(removed for removed, _ in passes) == 5
    assert TaskRun.objects.count() == 5


@pytest.mark.parametrize("age", ["30", "d", "-1d", "30 days", "1y", ""])
def test_a_bad_age_is_refused_with_an_example(age: str) -> None:
    with pytest.raises(CommandError, match="30d"):
        prune(f"--older-than={age}")


def test_a_live_status_is_refused_by_sql_too() -> None:
    with pytest.raises(InvalidArgument, match="not final"), transaction.atomic():
        list(prune_tasks(["queued"], timedelta(0), using="default"))
