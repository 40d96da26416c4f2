"""`cb_tick`: runs made due, lost runs taken back, by one worker at a time."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.db.models.functions import Now

from catbird_django.engine import tasks
from catbird_django.engine.tasks import claim_suspect_task
from catbird_django.engine.tick import Tick, tick
from catbird_django.models import Lease, Task, TaskRun
from catbird_django.statuses import SettleVerdict
from tests.support import LEASE, USING, claim, queue_runs, register, register_worker, second_session

HOLD = timedelta(seconds=15)
GRACE = timedelta(seconds=30)


def tick_as(worker_id: int, limit: int = 1000) -> Tick:
    return tick(worker_id, hold=HOLD, limit=limit, cancel_grace=GRACE, using=USING)


def expire_leases() -> None:
    TaskRun.objects.started().update(lease_until=Now() - timedelta(seconds=1))


def test_only_one_worker_ticks_until_its_lease_is_over() -> None:
    """W9: elected by a row, no session lock."""
    first, second = register_worker(), register_worker()

    assert tick_as(first).is_elected
    refused = tick_as(second)
    assert tick_as(first).is_elected

    assert not refused.is_elected
    assert timedelta(0) < refused.next_due_in <= HOLD


def test_another_takes_over_when_the_holder_is_not_heard_of() -> None:
    first, second = register_worker(), register_worker()
    tick_as(first)
    Lease.objects.update(held_until=Now() - timedelta(seconds=1))

    assert tick_as(second).is_elected
    assert not tick_as(first).is_elected


def test_a_run_is_made_due_when_its_time_has_come() -> None:
    """T3: until then it is outside the claim index."""
    [task_id] = register("mail")
    worker_id = register_worker()
    queue_runs("mail", 1, delay=timedelta(hours=1), queue="post")
    soon = tick_as(worker_id)
    assert soon.queues == []
    assert timedelta(minutes=59) < soon.next_due_in <= timedelta(hours=1)

    TaskRun.objects.update(visible_at=Now() - timedelta(seconds=1))
    due = tick_as(worker_id)

    assert due.queues == ["post"]
    assert due.next_due_in is None
    assert TaskRun.objects.get(task_id=task_id).visible_at is None


@pytest.mark.parametrize("style", ["sql_standard", "iso_8601"])
def test_the_next_due_time_is_told_in_any_interval_style(style: str) -> None:
    """RELIABILITY 35: the driver reads intervals in one style only."""
    register("mail")
    queue_runs("mail", 1, delay=timedelta(hours=1))
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL IntervalStyle = '{style}'")

    assert timedelta(minutes=59) < tick_as(register_worker()).next_due_in <= timedelta(hours=1)


def test_a_lost_run_is_queued_again_and_the_loss_is_counted() -> None:
    """W3, T7a."""
    [task_id] = register("mail")
    queue_runs("mail", 1)
    worker_id = register_worker()
    [lost] = claim((task_id, 0), worker_id=worker_id)
    expire_leases()

    ticked = tick_as(worker_id)

    run = TaskRun.objects.get()
    assert (run.status, run.lost_count, run.failure_count, run.lease_until) == ("queued", 1, 0, None)
    assert (ticked.lost_count, ticked.queues) == (1, ["default"])
    assert tasks.complete_tasks([(lost.delivery, "1")], notify=False, using=USING) == [SettleVerdict.STALE]


def test_a_lease_that_is_still_good_is_left_alone() -> None:
    [task_id] = register("mail")
    queue_runs("mail", 1)
    worker_id = register_worker()
    claim((task_id, 0), worker_id=worker_id)

    assert tick_as(worker_id).lost_count == 0
    assert TaskRun.objects.get().status == "started"


def test_a_run_that_loses_its_worker_too_often_fails() -> None:
    """T7a: lost > max_lost, and it says so."""
    [task_id] = register("mail")
    Task.objects.update(max_lost=2)
    queue_runs("mail", 1)
    worker_id = register_worker()

    for _ in range(2):
        claim((task_id, 0), worker_id=worker_id)
        expire_leases()
        tick_as(worker_id)
    claim_suspect_task([task_id], None, worker_id=worker_id, lease=LEASE, using=USING)
    expire_leases()
    tick_as(worker_id)

    run = TaskRun.objects.get()
    assert (run.status, run.lost_count, run.delivery_count) == ("failed", 3, 3)
    assert run.error["message"] == "lost its worker 3 times"


def test_a_round_is_bounded_and_says_that_there_is_more() -> None:
    """River's bug: a full page of something hides the rest for ever."""
    [task_id] = register("mail")
    queue_runs("mail", 10)
    worker_id = register_worker()
    claim((task_id, 0), worker_id=worker_id)
    expire_leases()

    rounds = [tick_as(worker_id, limit=4) for _ in range(4)]

    assert [ticked.lost_count for ticked in rounds] == [4, 4, 2, 0]
    assert [ticked.is_full for ticked in rounds] == [True, True, False, False]


@pytest.mark.django_db(transaction=True)
def test_a_run_that_is_being_settled_is_not_taken_back() -> None:
    """It skips what is locked, and waits for nobody."""
    [task_id] = register("mail")
    queue_runs("mail", 2)
    worker_id = register_worker()
    first, _ = claim((task_id, 0), worker_id=worker_id)
    expire_leases()

    with second_session() as other:
        other.execute("SELECT id FROM cb_task_runs WHERE id = %s FOR UPDATE", [first.run_id])
        ticked = tick_as(worker_id)

    assert ticked.lost_count == 1
    assert TaskRun.objects.get(id=first.run_id).status == "started"


def test_a_failed_attempt_is_tried_again_as_often_as_the_task_allows() -> None:
    """T7: the database counts."""
    [task_id] = register("mail")
    Task.objects.update(max_retries=2)
    queue_runs("mail", 1)
    worker_id = register_worker()
    verdicts = []

    for _ in range(3):
        [attempt] = claim((task_id, 0), worker_id=worker_id)
        failure = (attempt.delivery, '{"type": "E", "message": "no"}', timedelta(0))
        verdicts += tasks.fail_tasks([failure], notify=True, using=USING)
        tick_as(worker_id)

    assert verdicts == [SettleVerdict.RETRYING, SettleVerdict.RETRYING, SettleVerdict.FAILED]
    run = TaskRun.objects.get()
    assert (run.status, run.failure_count, run.delivery_count) == ("failed", 3, 3)


def test_retries_failures_and_stale_claims_are_told_apart_in_order() -> None:
    [task_id] = register("mail")
    Task.objects.update(max_retries=1)
    queue_runs("mail", 3)
    first, second, third = claim((task_id, 0), worker_id=register_worker())
    stale = second.delivery._replace(delivery_token=str(UUID(int=0)))
    error = '{"type": "E", "message": "no"}'

    verdicts = tasks.fail_tasks(
        [(third.delivery, error, timedelta(hours=1)), (stale, error, None), (first.delivery, error, None)],
        notify=False,
        using=USING,
    )

    assert verdicts == [SettleVerdict.RETRYING, SettleVerdict.STALE, SettleVerdict.FAILED]
    assert TaskRun.objects.get(id=third.run_id).visible_at is not None


def test_a_snoozed_run_comes_back_later_and_nothing_is_counted() -> None:
    [task_id] = register("mail")
    queue_runs("mail", 1)
    [held] = claim((task_id, 0), worker_id=register_worker())

    tasks.release_tasks([(held.delivery, timedelta(hours=1))], notify=False, using=USING)

    run = TaskRun.objects.get()
    assert (run.status, run.failure_count, run.lost_count) == ("queued", 0, 0)
    assert run.visible_at is not None
