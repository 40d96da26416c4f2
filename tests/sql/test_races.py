"""Two sessions at one run, at the same moment: exactly one of them decides, and both learn what became of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connection, connections

from catbird_django.engine import tasks
from catbird_django.engine.call import blames_lock
from catbird_django.engine.reports import report_tasks
from catbird_django.engine.tasks import Delivery, RunAnswer, run_tasks
from catbird_django.engine.workers import announce_sleep, find_writers
from catbird_django.models import Task, TaskRun
from catbird_django.statuses import CancelVerdict, ReportVerdict, SettleVerdict
from tests.sql.test_cancel import cancel_runs
from tests.sql.test_settle_tasks import complete, extend, fail, give_up, release
from tests.sql.test_tick import expire_leases, tick_as
from tests.support import USING, claim, queue_runs, register, register_worker, second_session, until

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 60


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Make these calls at the same moment, each on a connection of its own; return their answers."""
    answers: dict[int, Any] = {}
    together = threading.Barrier(len(calls))

    def make(number: int, call: Callable[[], Any]) -> None:
        connections["default"].ensure_connection()
        together.wait()
        answers[number] = call()
        connections.close_all()

    threads = [threading.Thread(target=make, args=[number, call]) for number, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    return [answers[number] for number in range(len(calls))]


@pytest.fixture
def deliveries() -> list[Delivery]:
    [task_id] = register("mail")
    queue_runs("mail", ROUNDS)
    claims = claim((task_id, 0), worker_id=register_worker(), limit=ROUNDS)
    return [claimed.delivery for claimed in claims]


def status_of(delivery: Delivery) -> str:
    return TaskRun.objects.values_list("status", flat=True).get(id=delivery.run_id)


def test_cancel_and_complete(deliveries: list[Delivery]) -> None:
    seen: Counter[str] = Counter()
    for delivery in deliveries:
        [completed], [canceled] = at_once(
            lambda held=delivery: complete([held]), lambda held=delivery: cancel_runs(held.run_id)
        )
        seen[status_of(delivery)] += 1
        # Whoever was first decides: a completed run stays completed, a canceling one drops the result.
        expected = {
            "completed": (SettleVerdict.COMPLETED, CancelVerdict.FINISHED),
            "canceled": (SettleVerdict.CANCELED, CancelVerdict.CANCELING),
        }
        assert (completed, canceled) == expected[status_of(delivery)]

    assert seen.total() == ROUNDS


def test_two_reports_of_one_claim(deliveries: list[Delivery]) -> None:
    for delivery in deliveries:
        [completed], [failed] = at_once(lambda held=delivery: complete([held]), lambda held=delivery: fail([held]))

        verdicts = {completed, failed}
        assert SettleVerdict.STALE in verdicts
        assert {status_of(delivery)} == {verdict.value for verdict in verdicts - {SettleVerdict.STALE}}


def test_a_lost_claim_is_taken_back_or_completed_never_both(deliveries: list[Delivery]) -> None:
    worker_id = register_worker()
    expire_leases()
    for delivery in deliveries[:20]:
        expire_leases()
        [completed], _ = at_once(lambda held=delivery: complete([held]), lambda: tick_as(worker_id))

        run = TaskRun.objects.get(id=delivery.run_id)
        if completed is SettleVerdict.COMPLETED:
            assert (run.status, run.lost_count) == ("completed", 0)
        else:
            assert (completed, run.status, run.lost_count) == (SettleVerdict.STALE, "queued", 1)


def test_a_renewed_lease_is_kept_or_the_claim_is_lost_never_both(deliveries: list[Delivery]) -> None:
    worker_id = register_worker()
    for delivery in deliveries[:20]:
        expire_leases()
        [extended], _ = at_once(lambda held=delivery: extend([held]), lambda: tick_as(worker_id))

        run = TaskRun.objects.get(id=delivery.run_id)
        # Locked is what it is for a moment, while the upkeep takes it back.
        expected = ("started", 0) if extended is SettleVerdict.EXTENDED else ("queued", 1)
        assert (run.status, run.lost_count) == expected


def test_a_lock_on_one_run_costs_no_other_its_lease(deliveries: list[Delivery]) -> None:
    """R5: a caller may cancel a run in a transaction that takes long; the keeper of its lease has others, too."""
    locked, *others = deliveries[:3]
    with second_session() as session:
        session.execute("SELECT FROM cb_cancel_tasks(ARRAY[%s]::bigint[])", [locked.run_id])

        assert extend([locked, *others]) == [SettleVerdict.LOCKED, SettleVerdict.EXTENDED, SettleVerdict.EXTENDED]
        session.commit()

    assert extend([locked, *others])[0] is SettleVerdict.CANCELING


@pytest.mark.parametrize("inputs", [["1"], ["1", "2"]])
def test_a_worker_that_announces_its_sleep_is_seen_by_a_producer_or_sees_it(inputs: list[str]) -> None:
    """R9a: between the producer's question and its insert, too."""
    register("mail")
    worker_id = register_worker()
    answers: list[RunAnswer] = []

    def produce() -> None:
        answers.extend(run_tasks("mail", inputs, using=USING))
        connections.close_all()

    with second_session() as session:
        session.execute("LOCK TABLE cb_task_runs IN SHARE MODE")  # reading is allowed, writing is not
        producer = threading.Thread(target=produce)
        producer.start()
        until(_somebody_waits_to_insert)
        announce_sleep(worker_id, using=USING)
        writers = find_writers(using=USING)
    producer.join(timeout=30)

    assert answers[0].is_awaited or writers.oldest < writers.next


def _somebody_waits_to_insert() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_locks WHERE relation = 'cb_task_runs'::regclass AND NOT granted")
        return cursor.fetchone() is not None


def test_cancel_and_claim() -> None:
    [task_id] = register("mail")
    worker_id = register_worker()
    for _ in range(ROUNDS):
        [run_id] = queue_runs("mail", 1)
        claims, [canceled] = at_once(
            lambda: claim((task_id, 0), worker_id=worker_id), lambda held=run_id: cancel_runs(held)
        )

        status = TaskRun.objects.get(id=run_id).status
        expected = ("canceling", CancelVerdict.CANCELING) if claims else ("canceled", CancelVerdict.CANCELED)
        assert (status, canceled) == expected


def test_batches_that_overlap_in_opposite_order_do_not_deadlock(deliveries: list[Delivery]) -> None:
    """R6: one lock order; the keeper, the settler and the canceler name the same rows."""
    ids = [delivery.run_id for delivery in deliveries]
    for start in range(0, ROUNDS, 10):
        part = deliveries[start : start + 10]
        at_once(
            lambda held=part: complete(held),
            lambda held=part: extend(held),
            lambda held=ids[start : start + 10]: cancel_runs(*reversed(held)),
        )

    assert set(TaskRun.objects.values_list("status", flat=True)) <= {"completed", "canceled", "canceling"}


@pytest.mark.parametrize("settle", [complete, fail, release, give_up])
def test_settling_does_not_wait_out_of_order_for_what_is_being_canceled(
    settle: Callable[[list[Delivery]], list[SettleVerdict]], deliveries: list[Delivery]
) -> None:
    """R6: it is looked at last, when later runs of the batch are locked already; so nobody may wait for it."""
    first, second = deliveries[:2]
    cancel_runs(first.run_id)
    with second_session() as session:
        session.execute("SELECT FROM cb_task_runs WHERE id = %s FOR NO KEY UPDATE", [first.run_id])

        verdicts = settle([first, second])

    assert verdicts[0] is SettleVerdict.LOCKED
    assert status_of(second) != "started"
    assert settle([first, second]) == [SettleVerdict.CANCELED, SettleVerdict.STALE]


def test_the_result_of_a_run_that_may_finish_is_not_dropped_because_it_is_locked(deliveries: list[Delivery]) -> None:
    """T12: on_cancel "finish"."""
    Task.objects.update(on_cancel="finish")
    [delivery] = deliveries[:1]
    cancel_runs(delivery.run_id)
    with second_session() as session:
        session.execute("SELECT FROM cb_task_runs WHERE id = %s FOR NO KEY UPDATE", [delivery.run_id])

        assert complete([delivery]) == [SettleVerdict.LOCKED]

    assert complete([delivery]) == [SettleVerdict.COMPLETED]


@pytest.mark.parametrize("settle", [complete, fail, release, give_up])
def test_settling_gives_up_soon_and_knows_for_whom_it_waited(
    settle: Callable[[list[Delivery]], list[SettleVerdict]], deliveries: list[Delivery]
) -> None:
    """R5: nothing has happened then, and the others can be settled without it."""
    locked, *others = deliveries[:3]
    with second_session() as session:
        cancel_in(session, locked)

        with pytest.raises(OperationalError) as raised:
            settle([locked, *others])

        assert blames_lock(raised.value)
        assert {status_of(one) for one in others} == {"started"}
        assert tasks.find_locked_tasks([one.run_id for one in deliveries], using=USING) == {locked.run_id}
        assert SettleVerdict.STALE not in settle(others)
    assert tasks.find_locked_tasks([locked.run_id, 2**60], using=USING) == set()


def test_progress_waits_for_nobody(deliveries: list[Delivery]) -> None:
    """T14."""
    locked, other = deliveries[:2]
    words = [(locked, '{"done": 1}'), (other, '{"done": 2}')]
    with second_session() as session:
        cancel_in(session, locked)

        answer = report_tasks(words, notify=False, using=USING)
    assert answer == [ReportVerdict.LOCKED, ReportVerdict.REPORTED]
    assert report_tasks(words, notify=False, using=USING) == [ReportVerdict.REPORTED] * 2


def cancel_in(session: Any, delivery: Delivery) -> None:
    session.execute("SELECT FROM cb_cancel_tasks(ARRAY[%s]::bigint[])", [delivery.run_id])


def test_settling_reporting_and_canceling_the_same_runs_never_deadlock() -> None:
    """R6: counted by the server, which looks for deadlocks before anybody has given up waiting."""
    [task_id] = register("mail")
    worker_id = register_worker()
    before = deadlocks()
    for _ in range(20):
        queue_runs("mail", 40)
        held = [one.delivery for one in claim((task_id, 0), worker_id=worker_id, limit=40)]
        ids = [one.run_id for one in held]
        cancel_runs(*ids[::2])
        words = [(one, '{"done": 1}') for one in held]
        impatient(
            lambda held=held: complete(held),
            lambda held=held: fail(held),
            lambda words=words: report_tasks(words, notify=False, using=USING),
            lambda words=words: report_tasks(words, notify=False, using=USING),
            lambda ids=ids: cancel_runs(*ids),
        )

    assert deadlocks() == before


def impatient(*calls: Callable[[], Any]) -> None:
    """Make these calls at the same moment, with servers that notice a deadlock at once."""

    def begin_with_a_look(call: Callable[[], Any]) -> Callable[[], Any]:
        def make() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SET deadlock_timeout = '5ms'")
            call()

        return make

    at_once(*(begin_with_a_look(call) for call in calls))


def deadlocks() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])
