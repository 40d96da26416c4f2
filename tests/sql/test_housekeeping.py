"""`sql/housekeeping.sql`: workers that are gone, dead rows, old transactions (W9)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now

from catbird_django.engine import housekeeping, tasks, workers
from catbird_django.engine.housekeeping import House
from catbird_django.models import TaskRun, Worker
from catbird_django.statuses import SettleVerdict
from tests.support import USING, claim, queue_runs, register, register_worker, second_session

TTL = timedelta(minutes=5)
DAY = timedelta(days=1)


def keep_house() -> House:
    return housekeeping.keep_house(worker_ttl=TTL, keep_stopped=DAY, using=USING)


def was_seen(worker_id: int, ago: timedelta) -> None:
    Worker.objects.filter(pk=worker_id).update(seen_at=Now() - ago)


def test_a_worker_that_is_not_heard_of_is_taken_off_the_record() -> None:
    silent, alive = register_worker(), register_worker()
    was_seen(silent, timedelta(minutes=6))
    was_seen(alive, timedelta(minutes=4))

    assert keep_house().lost_workers == ["here:1"]
    assert [worker.pk for worker in Worker.objects.all()] == [alive]


def test_a_worker_that_stopped_stays_on_record_for_a_day() -> None:
    lately, long_ago = register_worker(), register_worker()
    for worker_id, ago in ((lately, timedelta(hours=23)), (long_ago, timedelta(hours=25))):
        Worker.objects.filter(pk=worker_id).update(stopped_at=Now() - ago, seen_at=Now() - ago)

    assert keep_house().lost_workers == []
    assert [worker.pk for worker in Worker.objects.all()] == [lately]


def test_claims_do_not_depend_on_the_worker_s_row() -> None:
    """W9: never the recovery path."""
    [task_id] = register("mail")
    queue_runs("mail", 1)
    worker_id = register_worker()
    [held] = claim((task_id, 0), worker_id=worker_id)
    was_seen(worker_id, timedelta(hours=1))

    keep_house()

    assert not Worker.objects.exists()
    assert TaskRun.objects.get().status == "started"
    assert tasks.complete_tasks([(held.delivery, "1")], notify=False, using=USING) == [SettleVerdict.COMPLETED]


def test_a_worker_that_comes_back_is_entered_again_under_its_number() -> None:
    row = workers.WorkerRow(
        boot_id="6f1c2c1e-0000-4000-8000-000000000001",  # type: ignore[arg-type]
        host="here",
        pid=1,
        version="1",
        queues=None,
        handlers=["mail"],
        slots=1,
    )
    worker_id = workers.register_worker(row, using=USING)
    was_seen(worker_id, timedelta(hours=1))
    keep_house()

    assert workers.register_worker(row, again_as=worker_id, using=USING) == worker_id
    assert workers.register_worker(row, again_as=worker_id, using=USING) == worker_id
    assert workers.renew_worker(worker_id, using=USING)


@pytest.mark.django_db(transaction=True)
def test_a_worker_whose_row_is_locked_is_left_alone() -> None:
    was_seen(register_worker(), timedelta(hours=1))

    with second_session() as other:
        other.execute("SELECT id FROM cb_workers FOR UPDATE")
        assert keep_house().lost_workers == []


def test_whether_notifications_arrive_is_on_record() -> None:
    """R9."""
    worker_id = register_worker()
    workers.announce_sleep(worker_id, using=USING)

    assert workers.set_listening(worker_id, True, using=USING)
    assert Worker.objects.get().is_listening
    assert workers.set_listening(worker_id, False, using=USING)

    worker = Worker.objects.get()
    assert not worker.is_listening
    assert worker.sleeping_since is None  # nobody need notify who cannot hear


@pytest.mark.django_db(transaction=True)
def test_a_ping_is_a_notification_for_one_worker() -> None:
    with second_session() as listener:
        listener.autocommit = True
        listener.execute("LISTEN cb_work")
        workers.ping_worker(42, using=USING)
        heard = [notice.payload for notice in listener.notifies(timeout=5, stop_after=1)]

    assert heard == ["ping 42"]


@pytest.mark.django_db(transaction=True)
def test_old_transactions_are_seen() -> None:
    with second_session() as other, connection.cursor() as cursor:
        other.execute("SELECT 1")
        assert keep_house().old_transactions == 0
        cursor.execute("SELECT prosrc FROM pg_proc WHERE proname = '_cb_now'")
        [clock] = cursor.fetchone()
        body = "CREATE OR REPLACE FUNCTION _cb_now() RETURNS timestamptz LANGUAGE sql STABLE AS $$ {} $$"
        cursor.execute(body.format("SELECT pg_catalog.clock_timestamp() + interval '2 minutes'"))
        try:
            found = keep_house()
        finally:
            cursor.execute(body.format(clock))

    assert found.old_transactions >= 1
    assert found.oldest_transaction > timedelta(minutes=2)


@pytest.mark.django_db(transaction=True)
def test_dead_rows_are_counted_and_vacuumed_away() -> None:
    register("mail")
    queue_runs("mail", 2000)
    TaskRun.objects.update(priority=1)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
    before = housekeeping.count_dead_rows(using=USING)

    housekeeping.vacuum_runs(using=USING)

    assert before.may_vacuum
    assert before.dead_rows >= 1000
    assert housekeeping.count_dead_rows(using=USING).dead_rows == 0


@pytest.mark.django_db(transaction=True)
def test_a_vacuum_waits_for_nobody() -> None:
    with second_session() as other:
        other.execute("LOCK TABLE cb_task_runs IN ACCESS EXCLUSIVE MODE")
        housekeeping.vacuum_runs(using=USING)


def test_a_role_that_may_not_vacuum_is_told_so() -> None:
    """W9: skipped, and the doctor says so."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE cb_test_worker")
        cursor.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        cursor.execute("SELECT cb_grant('cb_test_worker', 'worker')")
        cursor.execute("SET LOCAL ROLE cb_test_worker")
        answer = housekeeping.count_dead_rows(using=USING)
        cursor.execute("SELECT check_id FROM cb_doctor()")
        checks = {row[0] for row in cursor.fetchall()}
        cursor.execute("RESET ROLE")

    assert not answer.may_vacuum
    assert "vacuum_not_permitted" in checks
