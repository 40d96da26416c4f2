"""`sql/breakers.sql`: a task that fails again and again rests, and is tried with one run (T9)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.db.models.functions import Now

from catbird_django.engine.tasks import (
    LaneHead,
    TaskClaim,
    claim_suspect_task,
    complete_tasks,
    fail_tasks,
    find_task_lanes,
    release_tasks,
)
from catbird_django.engine.tick import tick
from catbird_django.models import Breaker, Event, Task, TaskRun
from tests.support import LEASE, USING, claim, queue_runs, register, register_worker, second_session

ERROR = '{"type": "Broken", "message": "no", "traceback": ""}'


def with_breaker(*names: str, failures: int = 3, rest: float = 60) -> list[int]:
    ids = register(*names)
    Task.objects.filter(id__in=ids).update(options={"breaker": [failures, rest]}, max_retries=100)
    return ids


def fail(claims: Sequence[TaskClaim], *, retry_in: timedelta | None = None) -> None:
    fail_tasks([(held.delivery, ERROR, retry_in) for held in claims], notify=False, using=USING)


def complete(claims: Sequence[TaskClaim]) -> None:
    complete_tasks([(held.delivery, "1") for held in claims], notify=False, using=USING)


def open_breaker(task_id: int, worker_id: int) -> list[TaskClaim]:
    """Let three runs fail; return four others that were claimed together with them."""
    queue_runs(Task.objects.get(id=task_id).name, 20)
    claims = claim((task_id, 0), worker_id=worker_id, limit=7)
    fail(claims[:3])
    assert Breaker.objects.get(task_id=task_id).open_until is not None
    return claims[3:]


def end_rest() -> None:
    Breaker.objects.filter(open_until__isnull=False).update(open_until=Now() - timedelta(seconds=1))


def lane(task_id: int) -> LaneHead:
    [head] = find_task_lanes([task_id], None, using=USING)
    return head


def state(task_id: int) -> tuple[int, bool]:
    breaker = Breaker.objects.get(task_id=task_id)
    return breaker.failure_count, breaker.open_until is not None


def events(name: str) -> list[tuple[int, Any]]:
    return list(Event.objects.filter(event=name).order_by("id").values_list("run_id", "details"))


def test_a_breaker_opens_after_so_many_failures_in_a_row() -> None:
    """T9: attempts that are tried again count like those that are final."""
    [task_id] = with_breaker("mail")
    queue_runs("mail", 5)
    claims = claim((task_id, 0), worker_id=register_worker())

    fail(claims[:1], retry_in=timedelta(hours=1))
    fail(claims[1:2])
    assert state(task_id) == (2, False)
    assert lane_is_free(task_id)
    fail(claims[2:3])

    assert state(task_id) == (3, True)
    rest = Breaker.objects.annotate(now=Now()).get()
    assert timedelta(seconds=55) < rest.open_until - rest.now <= timedelta(seconds=60)
    assert events("breaker_opened") == [(claims[2].run_id, {"rest": 60, "failures": 3})]


def lane_is_free(task_id: int) -> bool:
    queue_runs(Task.objects.get(id=task_id).name, 1)
    head = lane(task_id)
    return (head.breaker, head.rests_for) == (None, None)


def test_failures_of_one_batch_count_each() -> None:
    [task_id] = with_breaker("mail", failures=4)
    queue_runs("mail", 5)

    fail(claim((task_id, 0), worker_id=register_worker()))

    assert state(task_id) == (5, True)
    assert len(events("breaker_opened")) == 1


def test_a_success_sets_the_count_back() -> None:
    """T9: failures in a row."""
    [task_id] = with_breaker("mail")
    queue_runs("mail", 6)
    claims = claim((task_id, 0), worker_id=register_worker())

    fail(claims[:2])
    complete(claims[2:3])
    assert state(task_id) == (0, False)
    fail(claims[3:5])

    assert state(task_id) == (2, False)
    assert events("breaker_closed") == []


def test_without_a_breaker_nothing_is_counted() -> None:
    [task_id] = register("mail")
    queue_runs("mail", 5)

    fail(claim((task_id, 0), worker_id=register_worker()))

    assert not Breaker.objects.exists()


def test_a_success_writes_nothing_where_nothing_has_failed() -> None:
    """T9: one failing task does not make the completions of others write."""
    [failing, fine, fresh] = with_breaker("failing", "fine", "fresh")
    for name in ("failing", "fine", "fresh"):
        queue_runs(name, 2)
    worker_id = register_worker()
    fail(claim((failing, 0), worker_id=worker_id, limit=1))
    Breaker.objects.create(task_id=fine)
    version = "SELECT xmin, ctid FROM cb_breakers WHERE task_id = %s"
    before = query(version, fine)

    complete(claim((fine, 0), (fresh, 0), worker_id=worker_id))

    assert query(version, fine) == before
    assert set(Breaker.objects.values_list("task_id", "failure_count")) == {(failing, 1), (fine, 0)}


def query(statement: str, *arguments: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments)
        return cursor.fetchone()


def test_nothing_is_claimed_while_it_is_open_and_others_are() -> None:
    """T9: waiting uses no attempt, nor even a delivery."""
    resting, other = with_breaker("resting", "other")
    worker_id = register_worker()
    open_breaker(resting, worker_id)
    queue_runs("resting", 2, priority=9)
    queue_runs("other", 3)

    claims = claim((resting, 9), (resting, 0), (other, 0), worker_id=worker_id)

    assert {held.handler_id for held in claims} == {other}
    assert len(claims) == 3
    assert not TaskRun.objects.filter(task_id=resting, delivery_count__gt=1).exists()
    heads = find_task_lanes([resting], None, using=USING)
    assert {head.breaker for head in heads} == {"open"}
    assert all(head.rests_for and 0 < head.rests_for <= 60 for head in heads)


def test_suspect_runs_rest_too_and_may_be_the_trial() -> None:
    """T7a, T9."""
    [task_id] = with_breaker("mail")
    worker_id = register_worker()
    open_breaker(task_id, worker_id)
    TaskRun.objects.queued().update(lost_count=2, delivery_count=2)

    assert claim_suspect_task([task_id], None, worker_id=worker_id, lease=LEASE, using=USING) is None
    end_rest()
    tried = claim_suspect_task([task_id], None, worker_id=worker_id, lease=LEASE, using=USING)

    assert tried is not None
    assert Breaker.objects.get().trial_run_id == tried.run_id
    assert claim_suspect_task([task_id], None, worker_id=worker_id, lease=LEASE, using=USING) is None


def test_after_the_rest_one_run_is_tried() -> None:
    """T9: half open. One of all lanes together, and none while it runs."""
    [task_id] = with_breaker("mail")
    worker_id = register_worker()
    open_breaker(task_id, worker_id)
    queue_runs("mail", 2, priority=9)
    end_rest()
    assert {(head.breaker, head.rests_for) for head in find_task_lanes([task_id], None, using=USING)} == {
        ("half_open", None)
    }

    [trial] = claim((task_id, 9), (task_id, 0), worker_id=worker_id)

    assert trial.priority == 9
    assert claim((task_id, 9), (task_id, 0), worker_id=worker_id) == []
    breaker = Breaker.objects.get()
    assert (breaker.trial_run_id, str(breaker.trial_token)) == trial.delivery
    head = find_task_lanes([task_id], None, using=USING)[0]
    assert (head.breaker, head.rests_for is None) == ("half_open", False)


def test_a_trial_that_completes_closes_the_breaker() -> None:
    """T9."""
    [task_id] = with_breaker("mail")
    worker_id = register_worker()
    open_breaker(task_id, worker_id)
    end_rest()
    trial = claim((task_id, 0), worker_id=worker_id)

    complete(trial)

    assert state(task_id) == (0, False)
    assert events("breaker_closed") == [(trial[0].run_id, None)]
    assert len(claim((task_id, 0), worker_id=worker_id)) == 10


def test_a_trial_that_fails_lets_the_task_rest_once_more() -> None:
    """T9: at once, however many failures it takes to open it."""
    [task_id] = with_breaker("mail")
    worker_id = register_worker()
    open_breaker(task_id, worker_id)
    end_rest()
    [trial] = claim((task_id, 0), worker_id=worker_id)

    fail([trial])

    assert lane(task_id).breaker == "open"
    assert claim((task_id, 0), worker_id=worker_id) == []
    assert [run_id for run_id, _ in events("breaker_opened")][1:] == [trial.run_id]
    assert Breaker.objects.get().trial_run_id is None


@pytest.mark.parametrize("end", ["released", "lost", "canceled"])
def test_a_trial_that_ends_without_a_word_makes_way_for_another(end: str) -> None:
    """T9: if its worker dies, another may try after the lease."""
    [task_id] = with_breaker("mail")
    worker_id = register_worker()
    open_breaker(task_id, worker_id)
    end_rest()
    [trial] = claim((task_id, 0), worker_id=worker_id)

    match end:
        case "released":
            release_tasks([(trial.delivery, timedelta(hours=1))], notify=False, using=USING)
        case "lost":
            TaskRun.objects.filter(id=trial.run_id).update(lease_until=Now() - timedelta(seconds=1))
            tick(worker_id, hold=LEASE, limit=10, cancel_grace=LEASE, using=USING)
        case "canceled":
            query("SELECT * FROM cb_cancel_tasks(ARRAY[%s]::bigint[], 'no more', 'me')", trial.run_id)
            assert claim((task_id, 0), worker_id=worker_id) == []  # it still runs
            complete([trial])

    [another] = claim((task_id, 0), worker_id=worker_id)
    assert Breaker.objects.get().trial_run_id == another.run_id
    assert claim((task_id, 0), worker_id=worker_id) == []


def test_what_was_claimed_before_it_opened_decides_nothing() -> None:
    """T9: neither closes it nor lengthens the rest."""
    [task_id] = with_breaker("mail")
    first, second, third, _ = open_breaker(task_id, register_worker())
    until = Breaker.objects.get().open_until

    complete([first])
    fail([second])

    assert Breaker.objects.get().open_until == until
    assert state(task_id) == (4, True)

    end_rest()
    complete([third])
    assert state(task_id) == (4, True)


def test_a_trial_that_is_stale_decides_nothing() -> None:
    """R5."""
    [task_id] = with_breaker("mail")
    worker_id = register_worker()
    open_breaker(task_id, worker_id)
    end_rest()
    [trial] = claim((task_id, 0), worker_id=worker_id)
    release_tasks([(trial.delivery, None)], notify=False, using=USING)

    complete([trial])
    fail([trial])

    assert state(task_id) == (3, True)
    assert len(claim((task_id, 0), worker_id=worker_id)) == 1


def test_a_trial_that_finds_nothing_to_run_is_no_trial() -> None:
    [task_id] = with_breaker("mail")
    worker_id = register_worker()
    open_breaker(task_id, worker_id)
    end_rest()

    assert claim((task_id, 50), worker_id=worker_id) == []
    assert Breaker.objects.get().trial_run_id is None
    assert len(claim((task_id, 0), worker_id=worker_id)) == 1


def test_a_task_that_has_no_breaker_any_more_rests_no_more() -> None:
    [task_id] = with_breaker("mail")
    worker_id = register_worker()
    open_breaker(task_id, worker_id)
    Task.objects.update(options={}, fingerprint="old")

    register("mail")

    assert not Breaker.objects.exists()
    assert len(claim((task_id, 0), worker_id=worker_id)) == 10


@pytest.mark.django_db(transaction=True)
def test_two_workers_never_try_at_the_same_time() -> None:
    """T9, R4: while one is about to claim the trial the other gets nothing, and does not wait."""
    [task_id] = with_breaker("mail")
    worker_id = register_worker()
    open_breaker(task_id, worker_id)
    end_rest()
    claim_trial = (
        "SELECT run_id FROM cb_claim_tasks("
        "1, '30 s', ARRAY['default'], ARRAY[%s]::bigint[], ARRAY[0], ARRAY[0]::bigint[], ARRAY[10])"
    )

    with second_session() as other:
        other.execute("SET lock_timeout = '5s'")
        tried = other.execute(claim_trial, [task_id]).fetchall()
        meanwhile = claim((task_id, 0), worker_id=worker_id)
        other.commit()
    afterwards = claim((task_id, 0), worker_id=worker_id)

    assert len(tried) == 1
    assert meanwhile == afterwards == []


@pytest.mark.django_db(transaction=True)
def test_of_many_workers_at_the_same_moment_one_tries() -> None:
    """T9: also when one looks while another commits."""
    [task_id] = with_breaker("mail")
    open_breaker(task_id, register_worker())
    start = threading.Barrier(6)

    def try_it(found: list[int]) -> None:
        for _ in range(15):
            start.wait(timeout=20)
            found.extend(held.run_id for held in claim((task_id, 0), worker_id=1))
            start.wait(timeout=20)
        connections.close_all()

    found: list[list[int]] = [[] for _ in range(5)]
    threads = [threading.Thread(target=try_it, args=[mine]) for mine in found]
    for thread in threads:
        thread.start()
    trials = []
    for _ in range(15):
        TaskRun.objects.filter(id=Breaker.objects.get().trial_run_id).update(
            status="queued", lease_until=None, delivery_token=None
        )
        end_rest()
        start.wait(timeout=20)
        start.wait(timeout=20)
        trials.append(sum(map(len, found)))
    for thread in threads:
        thread.join(timeout=20)

    assert trials == list(range(1, 16))
