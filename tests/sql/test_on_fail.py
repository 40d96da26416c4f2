"""on_fail in SQL: queued with the failure, in the same transaction, once."""

import json
from datetime import timedelta

import pytest

from catbird_django.engine import tasks
from catbird_django.engine.tick import tick
from catbird_django.models import Event, Task, TaskRun
from tests.support import LEASE, USING, claim, queue_runs, register, register_worker

ERROR = json.dumps({"type": "ValueError", "message": "no", "traceback": ""})


@pytest.fixture
def charge() -> int:
    [charge, _] = register("charge", "refund")
    Task.objects.filter(name="charge").update(on_fail="refund")
    return charge


def fail(claimed: tasks.TaskClaim, *, retry_in: timedelta | None = None) -> None:
    tasks.fail_tasks([(claimed.delivery, ERROR, retry_in)], notify=True, using=USING)


def test_a_final_failure_queues_the_answer_with_input_error_and_attempts(charge: int) -> None:
    """T11: a run of its own; the failed one stays failed."""
    [run_id] = queue_runs("charge", 1, priority=7, headers='{"trace": "1"}')
    [claimed] = claim((charge, 7), worker_id=register_worker())

    fail(claimed)

    answer = TaskRun.objects.get(task__name="refund")
    assert (answer.origin_id, answer.role, answer.status, answer.priority) == (run_id, "on_fail", "queued", 7)
    assert answer.headers == {"trace": "1"}
    assert answer.input == {
        "run_id": run_id,
        "task": "charge",
        "input": 0,
        "error": json.loads(ERROR),
        "attempts": 1,
    }
    assert TaskRun.objects.get(id=run_id).status == "failed"


def test_a_failure_that_is_tried_again_queues_none(charge: int) -> None:
    Task.objects.update(max_retries=3)
    queue_runs("charge", 1)
    [claimed] = claim((charge, 0), worker_id=register_worker())

    fail(claimed, retry_in=timedelta(seconds=1))

    assert not TaskRun.objects.filter(role="on_fail").exists()


def test_a_stale_failure_queues_none(charge: int) -> None:
    queue_runs("charge", 1)
    [claimed] = claim((charge, 0), worker_id=register_worker())
    fail(claimed)
    fail(claimed)

    assert TaskRun.objects.filter(role="on_fail").count() == 1


def test_a_run_that_lost_its_worker_too_often_is_answered_for_too(charge: int) -> None:
    Task.objects.update(max_lost=0)
    [run_id] = queue_runs("charge", 1)
    worker_id = register_worker()
    claim((charge, 0), worker_id=worker_id)
    TaskRun.objects.update(lease_until="2000-01-01T00:00:00Z")

    done = tick(worker_id, hold=LEASE, limit=10, cancel_grace=LEASE, using=USING)

    answer = TaskRun.objects.get(role="on_fail")
    assert (answer.origin_id, answer.input["attempts"]) == (run_id, 1)
    assert "default" in done.queues


def test_a_run_whose_condition_cannot_be_decided_is_answered_for_too(charge: int) -> None:
    """T11, T6: it has failed at once, for good."""
    tree = {"op": "gt", "field": "input", "path": ["input"], "value": 10}
    Task.objects.filter(name="charge").update(condition={"text": "input gt 10", "tree": tree})

    answers = tasks.run_tasks("charge", ["1", '"much"', "11"], using=USING)

    assert [str(answer.verdict) for answer in answers] == ["skipped", "failed", "queued"]
    answer = TaskRun.objects.get(role="on_fail")
    assert (answer.origin_id, answer.input["input"], answer.input["attempts"]) == (answers[1].run_id, "much", 0)


def test_an_answer_has_all_events_where_the_failed_run_has(charge: int) -> None:
    """E1: EVENTS = "all"."""
    queue_runs("charge", 1, all_events=True)
    queue_runs("charge", 1)
    for claimed in claim((charge, 0), worker_id=register_worker()):
        fail(claimed)

    first, second = TaskRun.objects.filter(role="on_fail").order_by("id")
    assert list(Event.objects.filter(run_id__in=[first.id, second.id]).values_list("run_id", "event")) == [
        (first.id, "queued")
    ]


def test_an_answer_that_fails_has_no_answer_itself(charge: int) -> None:
    """Two tasks that answer for each other would never end."""
    Task.objects.filter(name="refund").update(on_fail="charge")
    queue_runs("charge", 1)
    worker_id = register_worker()
    [claimed] = claim((charge, 0), worker_id=worker_id)
    fail(claimed)
    [answer] = claim((Task.objects.get(name="refund").id, 0), worker_id=worker_id)

    fail(answer)

    assert TaskRun.objects.count() == 2


def test_an_answer_that_nobody_registered_is_on_record(charge: int) -> None:
    Task.objects.filter(name="charge").update(on_fail="nobody")
    [run_id] = queue_runs("charge", 1)
    [claimed] = claim((charge, 0), worker_id=register_worker())

    fail(claimed)

    assert Event.objects.filter(run_id=run_id, event="on_fail_unknown").count() == 1
    assert TaskRun.objects.count() == 1
