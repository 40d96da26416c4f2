"""T4a: one live run per concurrency key, one effective run per idempotency key, and nobody gets NULL."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connections, transaction

from catbird_django.engine import tasks
from catbird_django.engine.tasks import RunAnswer
from catbird_django.errors import InvalidArgument
from catbird_django.models import TaskRun
from catbird_django.statuses import RunVerdict, TaskStatus
from tests.factories import TaskFactory, TaskRunFactory
from tests.support import USING, claim, is_waiting_for_a_lock, register, register_worker, second_session, until


def run(key: str | None, kind: str = "concurrency_keys", name: str = "mail") -> RunAnswer:
    [answer] = tasks.run_tasks(name, ["1"], using=USING, **{kind: [key]})
    return answer


KINDS = ["concurrency_keys", "idempotency_keys"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_second_run_of_a_key_is_the_first(kind: str) -> None:
    register("mail")

    first, second = run("order-7", kind), run("order-7", kind)

    assert (first.verdict, second.verdict) == (RunVerdict.QUEUED, RunVerdict.DUPLICATE)
    assert first.run_id == second.run_id is not None
    assert TaskRun.objects.count() == 1


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_different_tasks_and_different_kinds_have_nothing_to_do_with_each_other(kind: str) -> None:
    register("mail", "post")
    other_kind = next(other for other in KINDS if other != kind)

    answers = [run("k", kind), run("k", kind, "post"), run("other", kind), run("k", other_kind)]

    assert {answer.verdict for answer in answers} == {RunVerdict.QUEUED}


@pytest.mark.parametrize("status", TaskStatus.values)
@pytest.mark.parametrize(
    ("kind", "taken_by"),
    [
        ("concurrency_key", {"queued", "started", "canceling"}),
        ("idempotency_key", {"queued", "started", "canceling", "completed", "skipped"}),
    ],
)
def test_whether_a_key_is_free_depends_on_the_status_of_its_run(kind: str, taken_by: set[str], status: str) -> None:
    """T4a, invariant 10: failed, canceled and expired runs free both kinds, completed and skipped ones free one."""
    task = TaskFactory(name="mail")
    traits = {} if status == "queued" else {status: True}
    first = TaskRunFactory(task=task, **traits, **{kind: "k"})

    second = run("k", f"{kind}s")

    assert (second.run_id == first.pk) == (status in taken_by)


@pytest.mark.parametrize(
    ("kind", "ending", "is_free"),
    [
        ("concurrency_keys", "completed", True),
        ("concurrency_keys", "failed", True),
        ("concurrency_keys", "started", False),
        ("idempotency_keys", "completed", False),
        ("idempotency_keys", "failed", True),
        ("idempotency_keys", "started", False),
    ],
)
def test_what_frees_a_key(kind: str, ending: str, is_free: bool) -> None:
    [task_id] = register("mail")
    first = run("k", kind)
    [held] = claim((task_id, 0), worker_id=register_worker())
    if ending == "completed":
        tasks.complete_tasks([(held.delivery, "1")], notify=False, using=USING)
    elif ending == "failed":
        tasks.fail_tasks([(held.delivery, '{"message": "no"}', None)], notify=False, using=USING)

    second = run("k", kind)

    assert (second.verdict is RunVerdict.QUEUED) == is_free
    assert (second.run_id != first.run_id) == is_free


def test_a_batch_answers_in_order_with_and_without_keys_and_with_repeated_ones() -> None:
    register("mail")
    earlier = run("b")

    answers = tasks.run_tasks(
        "mail", ["1", "2", "3", "4", "5"], concurrency_keys=["c", None, "b", "a", "c"], using=USING
    )

    queued, duplicate = RunVerdict.QUEUED, RunVerdict.DUPLICATE
    assert [answer.verdict for answer in answers] == [queued, queued, duplicate, queued, duplicate]
    assert answers[2].run_id == earlier.run_id
    assert answers[4].run_id == answers[0].run_id
    assert [TaskRun.objects.get(id=answers[place].run_id).input for place in (0, 1, 3)] == [1, 2, 4]


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"concurrency_keys": ["a", "b"]}, "equally many"),
        ({"concurrency_keys": ["a"], "idempotency_keys": ["a"]}, "not both"),
        ({"concurrency_keys": [""]}, "1 to 512 bytes"),
        ({"idempotency_keys": ["x" * 3000]}, "1 to 512 bytes"),
    ],
)
def test_keys_that_cannot_be_are_refused(keys: dict[str, Any], complaint: str) -> None:
    register("mail")

    with pytest.raises(InvalidArgument, match=complaint), transaction.atomic():
        tasks.run_tasks("mail", ["1"], using=USING, **keys)


def test_the_database_itself_refuses_a_second_live_run() -> None:
    register("mail")
    run("k")
    free = run("other")

    with pytest.raises(IntegrityError, match="one_live_per_key"), transaction.atomic():
        TaskRun.objects.filter(id=free.run_id).update(concurrency_key="k")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("commits", [True, False])
def test_who_comes_second_waits_for_the_first_and_gets_its_run(kind: str, commits: bool) -> None:
    """The forced race: the winner commits, or not, while the other waits for it."""
    register("mail")
    statement = f"SELECT run_id FROM cb_run_tasks('mail', ARRAY['1']::jsonb[], p_{kind} => ARRAY['k'])"
    answers: list[RunAnswer] = []

    with second_session() as winner:
        [(winners_id,)] = winner.execute(statement).fetchall()
        loser = threading.Thread(target=lambda: (answers.append(run("k", kind)), connections.close_all()))
        loser.start()
        until(lambda: is_waiting_for_a_lock())
        winner.commit() if commits else winner.rollback()
        loser.join(timeout=10)

    assert answers[0].verdict is (RunVerdict.DUPLICATE if commits else RunVerdict.QUEUED)
    assert (answers[0].run_id == winners_id) == commits
    assert TaskRun.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", KINDS)
def test_eight_callers_that_race_for_a_hundred_keys_all_get_the_same_runs(kind: str) -> None:
    """G5: 0 NULL, 0 errors, one live run per key."""
    register("mail")
    answers: Counter[tuple[str, int | None]] = Counter()
    lock, together = threading.Lock(), threading.Barrier(8)

    def race() -> None:
        for number in range(100):
            together.wait()
            answer = run(f"k{number}", kind)
            with lock:
                answers[f"k{number}", answer.run_id] += 1
        connections.close_all()

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(answers.values()) == {8}
    assert len(answers) == 100
    assert None not in {run_id for _, run_id in answers}
    assert TaskRun.objects.count() == 100


@pytest.mark.django_db(transaction=True)
def test_batches_that_race_for_the_same_keys_do_not_deadlock() -> None:
    """R6: keys are taken in sort order."""
    register("mail")
    keys = [f"k{number}" for number in range(50)]
    errors: list[Exception] = []

    def race(order: list[str]) -> None:
        try:
            for _ in range(20):
                with transaction.atomic():
                    tasks.run_tasks("mail", ["1"] * len(order), concurrency_keys=order, using=USING)
        except DatabaseError as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=race, args=[order]) for order in (keys, keys[::-1], keys[25:] + keys[:25])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert TaskRun.objects.count() == 50


@pytest.mark.django_db(transaction=True)
def test_under_repeatable_read_the_caller_is_told_to_try_again() -> None:
    """T4a: 40001, since the winner can never be seen there."""
    register("mail")

    with second_session() as late:
        late.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        late.execute("SELECT 1 FROM cb_tasks")
        run("k")
        with pytest.raises(Exception, match="could not serialize") as caught:
            late.execute("SELECT * FROM cb_run_tasks('mail', ARRAY['1']::jsonb[], p_concurrency_keys => ARRAY['k'])")

    assert not isinstance(caught.value, DatabaseError)
    assert caught.value.sqlstate == "40001"
