"""T13: `cb_retry_tasks` makes a new run of one that has ended."""

from __future__ import annotations

import pytest

from catbird_django.engine import tasks
from catbird_django.engine.cancel import cancel_tasks
from catbird_django.engine.retry import retry_tasks
from catbird_django.models import RunTag, Task, TaskRun
from catbird_django.statuses import RetryVerdict
from tests.factories import TaskRunFactory
from tests.support import USING, queue_runs, register


def test_the_new_run_is_like_the_old_one_and_knows_it() -> None:
    register("mail")
    [old_id] = queue_runs("mail", 1, priority=3, headers='{"a": 1}', tags=["red"], idempotency_keys=["i"], queue="post")
    cancel_tasks([old_id], reason="", actor="", notify=False, using=USING)

    [answer] = retry_tasks([old_id], actor="ada", using=USING)

    old, new = TaskRun.objects.get(id=old_id), TaskRun.objects.get(id=answer.run_id)
    assert (answer.verdict, answer.queue, new.status) == (RetryVerdict.QUEUED, "post", "queued")
    assert (new.origin_id, new.role) == (old_id, "retry")
    assert (new.task_id, new.queue, new.priority, new.input, new.headers) == (
        old.task_id,
        "post",
        3,
        old.input,
        {"a": 1},
    )
    assert new.idempotency_key is None
    assert list(RunTag.objects.filter(run_id=new.id).values_list("tag", flat=True)) == ["red"]
    assert old.status == "canceled"


@pytest.mark.parametrize("ending", ["completed", "failed", "skipped", "canceled", "expired"])
def test_however_it_ended_it_can_be_run_again(ending: str) -> None:
    old = TaskRunFactory(**{ending: True})

    [answer] = retry_tasks([old.id], actor="", using=USING)

    assert answer.verdict is RetryVerdict.QUEUED


def test_what_is_live_or_unknown_is_an_answer_and_answers_come_in_order() -> None:
    """R5a."""
    done = TaskRunFactory(completed=True)
    live = [TaskRunFactory(**{trait: True}) for trait in ("started", "canceling", "delayed")]

    answers = retry_tasks([live[0].id, done.id, 0, live[1].id, live[2].id, done.id], actor="", using=USING)

    verdicts = [answer.verdict.value for answer in answers]
    assert verdicts == ["live", "queued", "unknown", "live", "live", "queued"]
    assert [answer.run_id is None for answer in answers] == [True, False, True, True, True, False]
    assert TaskRun.objects.count() == 6


def test_the_concurrency_key_is_kept_and_a_live_run_that_has_it_is_the_answer() -> None:
    old = TaskRunFactory(failed=True, concurrency_key="k")

    first, second = retry_tasks([old.id, old.id], actor="", using=USING)

    assert (first.verdict, second.verdict) == (RetryVerdict.QUEUED, RetryVerdict.DUPLICATE)
    assert first.run_id == second.run_id
    assert TaskRun.objects.get(id=first.run_id).concurrency_key == "k"


def test_the_condition_is_decided_anew() -> None:
    """T6: decided at enqueue, of the new run too."""
    old = TaskRunFactory(completed=True, input=5)
    tree = {"op": "gt", "field": "input", "path": ["input"], "value": 10}
    Task.objects.update(condition={"text": "input gt 10", "tree": tree})

    [answer] = retry_tasks([old.id], actor="", using=USING)

    assert answer.verdict is RetryVerdict.SKIPPED
    assert tasks.read_task_run(answer.run_id, using=USING).status == "skipped"
