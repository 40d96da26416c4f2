"""`sql/retention.sql`: runs go when their time is over, and take with them what belongs to them (T15)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now

from catbird_django.engine.doctor import examine
from catbird_django.engine.retention import apply_retention, prune_tasks
from catbird_django.models import Event, RunLog, RunTag, Task, TaskRun
from tests.factories import EventFactory, RunLogFactory, RunTagFactory, TaskFactory, TaskRunFactory
from tests.support import USING, second_session

MONTH = timedelta(days=30)


def ended(days: float, *, task: Task | None = None, **traits: object) -> TaskRun:
    """A run that was queued and ended so many days ago."""
    run = TaskRunFactory(**({"completed": True} if not traits else {}), **traits, **({"task": task} if task else {}))
    moment = Now() - timedelta(days=days)
    TaskRun.objects.filter(pk=run.pk).update(queued_at=moment, started_at=moment, finished_at=moment)
    return run


def apply(retention: timedelta | None = MONTH, *, after_id: int = 0, limit: int = 1000) -> tuple[int, int | None]:
    return apply_retention(retention, after_id=after_id, limit=limit, using=USING)


def test_runs_go_after_their_task_s_retention_or_else_after_the_general_one() -> None:
    hasty, usual = TaskFactory(retention=timedelta(days=1)), TaskFactory()
    ended(2, task=hasty)
    kept = [ended(0.5, task=hasty), ended(2, task=usual)]
    ended(31, task=usual)

    assert apply() == (2, None)
    assert set(TaskRun.objects.all()) == set(kept)


def test_without_a_general_retention_only_tasks_that_have_one_lose_runs() -> None:
    ended(1000)
    assert apply(None) == (0, None)
    ended(1000, task=TaskFactory(retention=MONTH))

    assert apply(None) == (1, None)
    assert TaskRun.objects.count() == 1


@pytest.mark.parametrize("trait", ["completed", "failed", "skipped", "canceled", "expired"])
def test_however_it_ended_it_goes(trait: str) -> None:
    ended(31, **{trait: True})

    assert apply() == (1, None)


def test_live_runs_stay_however_old() -> None:
    queued, started = TaskRunFactory(), TaskRunFactory(started=True)
    TaskRun.objects.update(queued_at=Now() - timedelta(days=1000))

    assert apply() == (0, None)
    assert set(TaskRun.objects.all()) == {queued, started}


@pytest.mark.parametrize("how", [lambda: apply(), lambda: list(prune_tasks(["completed"], MONTH, using=USING))])
def test_what_is_written_down_beside_a_run_goes_with_it(how: object) -> None:
    """Invariant 13: no orphans."""
    old, new = ended(31), ended(1)
    for run in (old, new):
        EventFactory(run_id=run.pk)
        RunLogFactory(run_id=run.pk)
        RunTagFactory(run_id=run.pk)

    how()  # type: ignore[operator]

    assert list(TaskRun.objects.all()) == [new]
    for model in (Event, RunLog, RunTag):
        assert [row.run_id for row in model.objects.all()] == [new.pk]


def test_a_run_may_go_before_those_that_were_made_from_it_and_the_doctor_agrees() -> None:
    """Invariant 13: an origin is a number, which may lead nowhere."""
    origin = ended(31)
    retried = ended(1)
    TaskRun.objects.filter(pk=retried.pk).update(origin_id=origin.pk, role="retry")

    apply()

    assert list(TaskRun.objects.values_list("pk", "origin_id")) == [(retried.pk, origin.pk)]
    second = timedelta(seconds=1)
    found = examine(lease=second, sweep=second, worker_ttl=second, patience=second, is_notifying=False, using=USING)
    assert [finding for finding in found if finding.severity == "error"] == []


def test_a_pass_goes_on_from_where_it_was_and_ends_where_runs_are_too_young() -> None:
    """Most runs are young: they are not looked at again and again."""
    old = [ended(31) for _ in range(5)]
    for _ in range(5):
        ended(1)

    assert apply(limit=2) == (2, old[1].pk)
    assert apply(limit=2, after_id=old[1].pk) == (2, old[3].pk)
    assert apply(limit=2, after_id=old[3].pk) == (1, None)


def test_a_run_that_has_just_ended_stays_a_minute_whatever_its_retention() -> None:
    """Its caller may still wait for it."""
    ended(0.0001, task=TaskFactory(retention=timedelta(milliseconds=1)))

    assert apply() == (0, None)


@pytest.mark.django_db(transaction=True)
def test_a_run_that_is_locked_is_left_for_the_next_pass() -> None:
    held, free = ended(31), ended(31)

    with second_session() as other:
        other.execute("SELECT id FROM cb_task_runs WHERE id = %s FOR KEY SHARE", [held.pk])
        assert apply() == (1, None)

    assert list(TaskRun.objects.all()) == [held]
    assert free.pk != held.pk
    assert apply() == (1, None)


def test_a_pass_walks_the_primary_key_and_children_are_found_by_theirs() -> None:
    """T15, G7: no scan of the tables, neither of all runs nor of all events."""
    ended(31)
    with connection.cursor() as cursor:
        before = scans(cursor)
        apply()
        after = scans(cursor)

    assert after == before


def scans(cursor: object) -> dict[str, int]:
    """Sequential scans of our tables by this transaction so far, except of the small ones."""
    cursor.execute(  # type: ignore[attr-defined]
        "SELECT relname, seq_scan FROM pg_stat_xact_user_tables"
        " WHERE relname IN ('cb_task_runs', 'cb_events', 'cb_run_logs', 'cb_run_tags')"
    )
    return dict(cursor.fetchall())  # type: ignore[attr-defined]
