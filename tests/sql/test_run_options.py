"""T4, T6, T13: what `cb_run_tasks` does with conditions, debounce keys, expiry and tags."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.db.models.functions import Now
from django.utils import timezone

from catbird_django.definitions.conditions import parse_condition
from catbird_django.engine import tasks
from catbird_django.engine.tasks import RunAnswer, claim_suspect_task
from catbird_django.engine.tick import tick
from catbird_django.engine.watching import watch
from catbird_django.errors import InvalidArgument
from catbird_django.models import RunTag, Task, TaskRun
from catbird_django.statuses import RunVerdict
from tests.support import (
    LEASE,
    USING,
    claim,
    is_waiting_for_a_lock,
    queue_runs,
    register,
    register_worker,
    second_session,
    until,
)


def register_with_condition(text: str) -> int:
    [task_id] = register("mail")
    Task.objects.filter(id=task_id).update(condition=parse_condition(text, roots={"input"}).as_json())
    return task_id


def run(*inputs: str, **options: Any) -> list[RunAnswer]:
    return tasks.run_tasks("mail", inputs, using=USING, **options)


def debounce(key: str, input: str = "1", **options: Any) -> RunAnswer:
    [answer] = run(input, debounce_keys=[key], **options)
    return answer


def tick_once(worker_id: int) -> Any:
    hold = timedelta(seconds=15)
    return tick(worker_id, hold=hold, limit=1000, cancel_grace=hold, using=USING)


def test_a_condition_decides_each_input_as_it_is_queued() -> None:
    """T6: false or missing is skipped, a type error has failed and names the field."""
    task_id = register_with_condition("input.amount gte 10")

    answers = run('{"amount": 10}', '{"amount": 9}', "{}", '{"amount": "10 EUR"}', '{"amount": 11}')

    assert [answer.verdict.value for answer in answers] == ["queued", "skipped", "skipped", "failed", "queued"]
    runs = {stored.id: stored for stored in TaskRun.objects.all()}
    assert [runs[answer.run_id].status for answer in answers] == [answer.verdict.value for answer in answers]
    skipped, failed = runs[answers[1].run_id], runs[answers[3].run_id]
    assert (skipped.finished_at is not None, skipped.started_at, skipped.input) == (True, None, {"amount": 9})
    assert failed.error["type"] == "ConditionError"
    assert failed.error["message"].startswith("input.amount: gte")
    claimed = claim((task_id, 0), worker_id=register_worker())
    assert [held.run_id for held in claimed] == [answers[0].run_id, answers[4].run_id]


def test_a_skipped_run_keeps_its_idempotency_key_and_a_failed_one_frees_it() -> None:
    """T4a."""
    register_with_condition("input gte 10")

    verdicts = [
        run(value, idempotency_keys=[key])[0].verdict.value
        for value, key in [("1", "a"), ("11", "a"), ('"x"', "b"), ("11", "b"), ("12", "b")]
    ]

    assert verdicts == ["skipped", "duplicate", "failed", "queued", "duplicate"]


def test_a_skipped_run_is_not_delayed() -> None:
    register_with_condition("input gte 10")

    run("1", "11", delay=timedelta(hours=1))

    assert {stored.status: stored.visible_at is None for stored in TaskRun.objects.all()} == {
        "skipped": True,
        "queued": False,
    }


@pytest.mark.django_db(transaction=True)
def test_waiters_are_told_of_a_skipped_run() -> None:
    """T6."""
    register_with_condition("input gte 10")

    with second_session() as listener:
        listener.autocommit = True
        listener.execute("LISTEN cb_live")
        watch(timedelta(seconds=30), using=USING)
        with connection.cursor() as cursor:
            cursor.execute("SELECT run_id FROM cb_run_tasks('mail', ARRAY['1']::jsonb[], p_notify => true)")
            [run_id] = cursor.fetchone()
        heard = [notice.payload for notice in listener.notifies(timeout=5, stop_after=1)]

    assert heard == [f"task_runs {run_id}"]


def in_a(**duration: float) -> datetime:
    return timezone.now() + timedelta(**duration)


def test_a_run_that_is_not_started_in_time_expires() -> None:
    """T4."""
    register("mail")
    worker_id = register_worker()
    [late, delayed] = queue_runs("mail", 1, expires_at=in_a(hours=1)) + queue_runs(
        "mail", 1, expires_at=in_a(hours=2), delay=timedelta(hours=3)
    )
    fine = queue_runs("mail", 1)
    assert timedelta(minutes=59) < tick_once(worker_id).next_due_in <= timedelta(hours=1)

    TaskRun.objects.filter(id__in=[late, delayed]).update(expires_at=Now() - timedelta(seconds=1))
    tick_once(worker_id)

    assert set(TaskRun.objects.filter(status="expired").values_list("id", flat=True)) == {late, delayed}
    assert TaskRun.objects.get(id=late).finished_at is not None
    assert TaskRun.objects.get(status="queued").id == fine[0]


@pytest.mark.parametrize("lost_count", [0, 2])
def test_an_expired_run_is_not_started_even_before_the_upkeep_sees_it(lost_count: int) -> None:
    """T4."""
    [task_id] = register("mail")
    worker_id = register_worker()
    late, fine = queue_runs("mail", 1, expires_at=in_a(seconds=-1)) + queue_runs("mail", 1, expires_at=in_a(hours=1))
    TaskRun.objects.update(lost_count=lost_count, delivery_count=lost_count)

    if lost_count:
        claimed = claim_suspect_task([task_id], None, worker_id=worker_id, lease=LEASE, using=USING)
        again = claim_suspect_task([task_id], None, worker_id=worker_id, lease=LEASE, using=USING)
        ids = [held.run_id for held in (claimed, again) if held]
    else:
        ids = [held.run_id for held in claim((task_id, 0), worker_id=worker_id)]

    assert ids == [fine]
    assert TaskRun.objects.get(id=late).status == "queued"


def test_a_started_run_does_not_expire() -> None:
    [task_id] = register("mail")
    worker_id = register_worker()
    queue_runs("mail", 1, expires_at=in_a(hours=1))
    claim((task_id, 0), worker_id=worker_id)
    TaskRun.objects.update(expires_at=Now() - timedelta(seconds=1))

    tick_once(worker_id)

    assert TaskRun.objects.get().status == "started"


def test_tags_are_stored_with_each_run_and_a_duplicate_keeps_its_own() -> None:
    """T4."""
    register("mail")

    first, second = run("1", "2", tags=["red", "big"])
    run("3", concurrency_keys=["k"], tags=["green"])
    [duplicate] = run("4", concurrency_keys=["k"], tags=["blue"])

    assert set(RunTag.objects.values_list("run_kind", "run_id", "tag")) == {
        *(("task", answer.run_id, tag) for answer in (first, second) for tag in ("red", "big")),
        ("task", duplicate.run_id, "green"),
    }


@pytest.mark.parametrize("tags", [["x"] * 21, [""], ["x" * 101], [None]])
def test_tags_that_cannot_be_are_refused(tags: list[Any]) -> None:
    register("mail")

    with pytest.raises(InvalidArgument, match="tag"), transaction.atomic():
        run("1", tags=tags)


def test_a_queued_run_with_the_debounce_key_takes_over_input_and_options() -> None:
    """T13."""
    register("mail")
    first = debounce("k", "1", delay=timedelta(hours=1), tags=["old"])

    second = debounce(
        "k", "2", priority=5, headers='{"a": 1}', expires_at=in_a(hours=3), delay=timedelta(hours=2), tags=["new"]
    )

    assert (first.verdict, second.verdict) == (RunVerdict.QUEUED, RunVerdict.REPLACED)
    stored = TaskRun.objects.get()
    assert first.run_id == second.run_id == stored.id
    assert (stored.input, stored.priority, stored.headers) == (2, 5, {"a": 1})
    assert stored.visible_at == stored.run_at > in_a(minutes=90)
    assert stored.expires_at is not None
    assert list(RunTag.objects.values_list("tag", flat=True)) == ["new"]


def test_a_replaced_run_may_be_due_at_once_and_a_started_one_is_left_alone() -> None:
    """T13."""
    [task_id] = register("mail")
    first = debounce("k", "1", delay=timedelta(hours=1))
    debounce("k", "2")
    [held] = claim((task_id, 0), worker_id=register_worker())

    later = debounce("k", "3")

    assert (held.run_id, held.input) == (first.run_id, "2")
    assert later.verdict is RunVerdict.QUEUED
    assert later.run_id != first.run_id


def test_a_released_run_comes_back_without_its_debounce_key() -> None:
    [task_id] = register("mail")
    debounce("k")
    [held] = claim((task_id, 0), worker_id=register_worker())
    debounce("k")

    tasks.release_tasks([(held.delivery, None)], notify=False, using=USING)

    assert TaskRun.objects.queued().count() == 2


def test_a_batch_may_name_a_debounce_key_twice_and_the_last_input_counts() -> None:
    register("mail")

    answers = run("1", "2", "3", "4", debounce_keys=["b", None, "a", "b"])

    assert [answer.verdict.value for answer in answers] == ["replaced", "queued", "queued", "queued"]
    assert answers[0].run_id == answers[3].run_id
    inputs = {stored.id: stored.input for stored in TaskRun.objects.all()}
    assert [inputs[answer.run_id] for answer in answers] == [4, 2, 3, 4]


def test_an_input_that_is_skipped_leaves_the_queued_run_alone() -> None:
    register_with_condition("input gte 10")
    first = debounce("k", "11")

    second = debounce("k", "1")

    assert second.verdict is RunVerdict.SKIPPED
    assert second.run_id != first.run_id
    assert TaskRun.objects.get(id=first.run_id).input == 11


def test_a_debounce_key_is_not_given_together_with_another() -> None:
    register("mail")

    with pytest.raises(InvalidArgument, match="not both"), transaction.atomic():
        run("1", debounce_keys=["a"], concurrency_keys=["a"])


def in_thread(answers: list[RunAnswer]) -> threading.Thread:
    thread = threading.Thread(target=lambda: (answers.append(debounce("k", "2")), connections.close_all()))
    thread.start()
    return thread


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("commits", [True, False])
def test_who_debounces_while_another_queues_waits_and_replaces_or_queues(commits: bool) -> None:
    """T13: the forced race of two first runs."""
    register("mail")
    answers: list[RunAnswer] = []
    statement = "SELECT run_id FROM cb_run_tasks('mail', ARRAY['1']::jsonb[], p_debounce_keys => ARRAY['k'])"

    with second_session() as winner:
        [(winners_id,)] = winner.execute(statement).fetchall()
        loser = in_thread(answers)
        until(is_waiting_for_a_lock)
        winner.commit() if commits else winner.rollback()
        loser.join(timeout=10)

    assert answers[0].verdict is (RunVerdict.REPLACED if commits else RunVerdict.QUEUED)
    assert (answers[0].run_id == winners_id) == commits
    assert TaskRun.objects.get().input == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("commits", [True, False])
def test_who_debounces_while_the_run_is_being_claimed_waits_and_queues_or_replaces(commits: bool) -> None:
    """T13: the forced race with a claim."""
    [task_id] = register("mail")
    worker_id = register_worker()
    first = debounce("k", "1")
    answers: list[RunAnswer] = []
    statement = (
        f"SELECT * FROM cb_claim_tasks({worker_id}, '30 s', ARRAY['default'], ARRAY[{task_id}]::bigint[], ARRAY[0],"
        " ARRAY[0]::bigint[], ARRAY[1])"
    )

    with second_session() as claimer:
        assert len(claimer.execute(statement).fetchall()) == 1
        other = in_thread(answers)
        until(is_waiting_for_a_lock)
        claimer.commit() if commits else claimer.rollback()
        other.join(timeout=10)

    assert answers[0].verdict is (RunVerdict.QUEUED if commits else RunVerdict.REPLACED)
    assert (answers[0].run_id == first.run_id) == (not commits)
    assert TaskRun.objects.get(id=first.run_id).input == (1 if commits else 2)


@pytest.mark.django_db(transaction=True)
def test_eight_callers_and_a_claimer_that_race_for_a_debounce_key_lose_nothing() -> None:
    """T13: nobody gets NULL, and the last input of each run is one that was given."""
    [task_id] = register("mail")
    worker_id = register_worker()
    answers: list[RunAnswer] = []
    claimed: list[int] = []
    done = threading.Event()

    def call() -> None:
        answers.extend(debounce("k", str(number)) for number in range(40))
        connections.close_all()

    def claim_on() -> None:
        while not done.is_set():
            claimed.extend(held.run_id for held in claim((task_id, 0), worker_id=worker_id))
        connections.close_all()

    callers, claimer = [threading.Thread(target=call) for _ in range(8)], threading.Thread(target=claim_on)
    for thread in (*callers, claimer):
        thread.start()
    for thread in callers:
        thread.join()
    done.set()
    claimer.join()

    ids = {answer.run_id for answer in answers}
    assert len(answers) == 320
    assert None not in ids
    assert ids == set(TaskRun.objects.values_list("id", flat=True))
    assert sum(answer.verdict is RunVerdict.QUEUED for answer in answers) == len(ids)
    assert len(claimed) == len(set(claimed)) >= len(ids) - 1
