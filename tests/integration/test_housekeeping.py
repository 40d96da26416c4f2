"""W9, T15: what the elected worker does for all, with a real worker."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now

from catbird_django import task
from catbird_django.models import TaskRun, Worker
from catbird_django.worker import housekeeping
from tests.factories import EventFactory, TaskRunFactory
from tests.support import register_worker, second_session, until, working

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_worker_removes_what_is_old_enough() -> None:
    """T15."""
    old, new = TaskRunFactory(completed=True), TaskRunFactory(completed=True)
    TaskRun.objects.filter(pk=old.pk).update(queued_at=Now() - timedelta(days=2), finished_at=Now() - timedelta(days=2))
    EventFactory(run_id=old.pk)

    with working(retention=timedelta(days=1)):
        until(lambda: list(TaskRun.objects.all()) == [new])


def test_a_worker_takes_those_that_are_gone_off_the_record(caplog: pytest.LogCaptureFixture) -> None:
    register_worker()
    Worker.objects.update(seen_at=Now() - timedelta(hours=1))

    with working() as worker:
        until(lambda: [row.pk for row in Worker.objects.all()] == [worker.id])

    assert "not heard of" in caplog.text


def test_a_worker_vacuums_after_so_many_runs(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """W9: on its own count, because the server's lags."""

    @task
    def mail() -> None: ...

    monkeypatch.setattr(housekeeping, "MANY", 100)
    before = vacuum_count()
    with working("mail", sweep_interval=timedelta(seconds=60)):
        for _ in range(150):
            mail.run()
        until(lambda: vacuum_count() > before)


def vacuum_count() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'cb_task_runs'")
        count: int = cursor.fetchone()[0]
    return count


def test_due_runs_do_not_wait_for_a_vacuum_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """W6: it is on a thread of its own."""

    @task
    def mail() -> str:
        return "sent"

    monkeypatch.setattr(housekeeping, "MANY", 1)
    monkeypatch.setattr(housekeeping.engine, "VACUUM", "VACUUM (TRUNCATE off) cb_task_runs")  # waits for locks
    with second_session() as other, working("mail", sweep_interval=timedelta(seconds=0.2)):
        other.execute("LOCK TABLE cb_task_runs IN SHARE UPDATE EXCLUSIVE MODE")  # against VACUUM only
        mail.run().wait(timeout=10)
        until(is_vacuum_waiting)

        assert mail.run(delay=timedelta(seconds=0.1)).wait(timeout=10) == "sent"
        assert is_vacuum_waiting()
        other.rollback()


def is_vacuum_waiting() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_stat_activity WHERE query LIKE 'VACUUM%' AND wait_event_type = 'Lock'")
        return cursor.fetchone() is not None


def test_trouble_with_the_housekeeping_does_not_end_the_worker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """W5."""
    caplog.set_level(logging.WARNING, logger="catbird.worker")
    monkeypatch.setattr(housekeeping, "WHEN_IN_TROUBLE", 0.1)
    with connection.cursor() as cursor:
        cursor.execute("ALTER FUNCTION cb_keep_house RENAME TO cb_elsewhere")
    register_worker()
    Worker.objects.update(seen_at=Now() - timedelta(hours=1))
    try:
        with working() as worker:
            until(lambda: "cannot keep house" in caplog.text)
            with connection.cursor() as cursor:
                cursor.execute("ALTER FUNCTION cb_elsewhere RENAME TO cb_keep_house")
            until(lambda: [row.pk for row in Worker.objects.all()] == [worker.id])
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT FROM pg_proc WHERE proname = 'cb_elsewhere'")
            if cursor.fetchone():
                cursor.execute("ALTER FUNCTION cb_elsewhere RENAME TO cb_keep_house")
