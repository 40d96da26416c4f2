"""`cb_events`: what is written, and what is not."""

import json
from datetime import timedelta

import pytest

from catbird_django.engine import tasks
from catbird_django.engine.cancel import cancel_claimed_tasks, cancel_tasks
from catbird_django.engine.tick import tick
from catbird_django.models import Event, Task, TaskRun
from tests.support import LEASE, USING, claim, queue_runs, register, register_worker

ERROR = json.dumps({"type": "ValueError", "message": "no", "traceback": "a long story"})
SECOND = timedelta(seconds=1)


@pytest.fixture
def task_id() -> int:
    [task_id] = register("mail")
    return task_id


@pytest.fixture
def worker_id() -> int:
    return register_worker()


def events() -> list[tuple[str, str, str, str]]:
    return list(Event.objects.order_by("id").values_list("event", "from_status", "to_status", "actor"))


def lose_workers(worker_id: int) -> None:
    TaskRun.objects.filter(lease_until__isnull=False).update(lease_until="2000-01-01T00:00:00Z")
    tick(worker_id, hold=LEASE, limit=100, cancel_grace=SECOND, using=USING)


def test_the_ordinary_life_of_a_run_writes_none(task_id: int, worker_id: int) -> None:
    """E1: its row's own timestamps tell it."""
    queue_runs("mail", 1)
    [claimed] = claim((task_id, 0), worker_id=worker_id)
    tasks.complete_tasks([(claimed.delivery, "1")], notify=False, using=USING)

    assert events() == []


def test_all_events_can_be_asked_for(task_id: int, worker_id: int) -> None:
    """E1: with EVENTS = "all" every transition is written, with its delivery."""
    queue_runs("mail", 2)
    [first, second] = tasks.claim_tasks(
        [tasks.LaneRequest(tasks.Lane("default", task_id, 0), 0, 10)],
        worker_id=worker_id,
        lease=LEASE,
        all_events=True,
        using=USING,
    )
    tasks.complete_tasks([(first.delivery, "1")], notify=False, all_events=True, using=USING)

    assert events() == [
        ("claimed", "queued", "started", "worker"),
        ("claimed", "queued", "started", "worker"),
        ("completed", "started", "completed", "worker"),
    ]
    assert {str(token) for token in Event.objects.values_list("delivery_token", flat=True)} == {
        second.delivery.delivery_token
    }


def test_a_failure_and_its_retry_are_told_apart(task_id: int, worker_id: int) -> None:
    Task.objects.update(max_retries=1)
    queue_runs("mail", 2)
    [first, second] = claim((task_id, 0), worker_id=worker_id)

    tasks.fail_tasks([(first.delivery, ERROR, SECOND), (second.delivery, ERROR, None)], notify=False, using=USING)

    assert events() == [("retrying", "started", "queued", "worker"), ("failed", "started", "failed", "worker")]
    retried, failed = Event.objects.order_by("id")
    assert retried.details == {"error": "ValueError", "message": "no", "retry_in": 1}
    assert failed.details == {"error": "ValueError", "message": "no"}
    assert (retried.run_id, str(retried.delivery_token)) == first.delivery


def test_releases_and_lost_deliveries_are_written(task_id: int, worker_id: int) -> None:
    queue_runs("mail", 1)
    [claimed] = claim((task_id, 0), worker_id=worker_id)
    tasks.release_tasks([(claimed.delivery, None)], notify=False, using=USING)
    claim((task_id, 0), worker_id=worker_id)
    lose_workers(worker_id)

    assert events() == [("released", "started", "queued", "worker"), ("lost", "started", "queued", "tick")]


def test_a_cancel_says_who_and_why_and_is_written_once(task_id: int, worker_id: int) -> None:
    """E1: none for no-ops; T12: idempotent."""
    [queued, *_] = queue_runs("mail", 1, priority=1) + queue_runs("mail", 1)
    [started] = claim((task_id, 0), worker_id=worker_id)
    for _ in range(2):
        cancel_tasks([queued, started.run_id], reason="sold out", actor="kim", notify=False, using=USING)
    tasks.complete_tasks([(started.delivery, "1")], notify=False, using=USING)

    assert events() == [
        ("canceled", "queued", "canceled", "kim"),
        ("cancel_requested", "started", "canceling", "kim"),
        ("canceled", "canceling", "canceled", "worker"),
    ]
    assert Event.objects.order_by("id")[0].details == {"reason": "sold out"}


def test_a_handler_that_cancels_its_run_is_the_actor(task_id: int, worker_id: int) -> None:
    queue_runs("mail", 1)
    [claimed] = claim((task_id, 0), worker_id=worker_id)
    cancel_claimed_tasks([(claimed.delivery, "nothing to do")], notify=False, using=USING)

    assert events() == [("canceled", "started", "canceled", "handler")]


def test_a_stale_report_writes_none(task_id: int, worker_id: int) -> None:
    """R5: it changes nothing, the record included."""
    queue_runs("mail", 1)
    [old] = claim((task_id, 0), worker_id=worker_id)
    lose_workers(worker_id)
    Event.objects.all().delete()

    tasks.fail_tasks([(old.delivery, ERROR, None)], notify=False, using=USING)
    tasks.release_tasks([(old.delivery, None)], notify=False, using=USING)
    tasks.complete_tasks([(old.delivery, "1")], notify=False, all_events=True, using=USING)

    assert events() == []
