"""`cb_complete_tasks`, `cb_fail_tasks`, `cb_release_tasks`, `cb_extend_tasks`."""

from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now

from catbird_django.engine import tasks
from catbird_django.engine.cancel import cancel_claimed_tasks
from catbird_django.engine.tasks import Delivery
from catbird_django.engine.watching import watch
from catbird_django.models import TaskRun
from catbird_django.statuses import SettleVerdict
from tests.support import LEASE, USING, claim, queue_runs, register, register_worker

Settle = Callable[[list[Delivery]], list[SettleVerdict]]

ERROR = '{"type": "ValueError", "message": "no"}'


def complete(deliveries: list[Delivery]) -> list[SettleVerdict]:
    return tasks.complete_tasks([(delivery, '{"done": true}') for delivery in deliveries], notify=True, using=USING)


def fail(deliveries: list[Delivery]) -> list[SettleVerdict]:
    return tasks.fail_tasks([(delivery, ERROR, None) for delivery in deliveries], notify=True, using=USING)


def release(deliveries: list[Delivery]) -> list[SettleVerdict]:
    return tasks.release_tasks([(delivery, None) for delivery in deliveries], notify=True, using=USING)


def extend(deliveries: list[Delivery]) -> list[SettleVerdict]:
    return tasks.extend_tasks(deliveries, lease=LEASE, using=USING)


def give_up(deliveries: list[Delivery]) -> list[SettleVerdict]:
    return cancel_claimed_tasks([(delivery, "not needed") for delivery in deliveries], notify=True, using=USING)


ALL = [complete, fail, release, extend, give_up]


def claimed_deliveries(count: int) -> list[Delivery]:
    [task_id] = register("mail")
    queue_runs("mail", count)
    return [claimed.delivery for claimed in claim((task_id, 0), worker_id=register_worker(), limit=count)]


def everything() -> list[tuple[object, ...]]:
    """All rows as they are, to see that nothing moved."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT run::text FROM cb_task_runs AS run ORDER BY id")
        return cursor.fetchall()


def test_a_completed_run_has_its_output_and_no_lease() -> None:
    [delivery] = claimed_deliveries(1)

    assert complete([delivery]) == [SettleVerdict.COMPLETED]

    run = TaskRun.objects.get()
    assert (run.status, run.output, run.lease_until) == ("completed", {"done": True}, None)
    assert run.finished_at >= run.started_at >= run.queued_at


def test_no_output_is_json_null_not_sql_null() -> None:
    """R11."""
    [delivery] = claimed_deliveries(1)

    tasks.complete_tasks([(delivery, "null")], notify=False, using=USING)

    assert TaskRun.objects.filter(output__isnull=False).count() == 1
    assert TaskRun.objects.get().output is None


def test_a_failed_run_has_its_error_and_counts_it() -> None:
    """T7a."""
    [delivery] = claimed_deliveries(1)

    assert fail([delivery]) == [SettleVerdict.FAILED]

    run = TaskRun.objects.get()
    assert (run.status, run.error["type"], run.failure_count) == ("failed", "ValueError", 1)


def test_a_released_run_is_queued_again_and_nothing_is_charged() -> None:
    """T7a: a release counts in deliveries only."""
    [delivery] = claimed_deliveries(1)

    assert release([delivery]) == [SettleVerdict.RELEASED]

    run = TaskRun.objects.get()
    assert (run.status, run.delivery_token, run.lease_until, run.worker_id) == ("queued", None, None, None)
    assert (run.delivery_count, run.failure_count, run.lost_count) == (1, 0, 0)


def test_an_extended_lease_begins_anew_even_when_it_had_run_out() -> None:
    """R5: the token alone decides."""
    [delivery] = claimed_deliveries(1)
    expired = TaskRun.objects.get().lease_until - timedelta(hours=1)
    TaskRun.objects.update(lease_until=expired)

    assert extend([delivery]) == [SettleVerdict.EXTENDED]

    assert TaskRun.objects.get().lease_until > expired + timedelta(minutes=59)


@pytest.mark.parametrize("settle", ALL)
def test_verdicts_come_in_the_order_given_and_a_stale_one_disturbs_nobody(settle: Settle) -> None:
    """R5a, F4."""
    first, second, third = claimed_deliveries(3)
    stale = Delivery(second.run_id, str(uuid4()))

    verdicts = settle([third, stale, first])

    assert [verdict is SettleVerdict.STALE for verdict in verdicts] == [False, True, False]


@pytest.mark.parametrize("settle", ALL)
@pytest.mark.parametrize("before", [complete, fail, release, give_up])
def test_whoever_lost_its_claim_changes_nothing(before: Settle, settle: Settle) -> None:
    """R5: also not after the end (R8), and the caller's transaction stays usable."""
    deliveries = claimed_deliveries(2)
    before(deliveries)
    rows = everything()

    assert settle(deliveries) == [SettleVerdict.STALE] * 2

    assert everything() == rows


@pytest.mark.parametrize("settle", ALL)
def test_a_run_that_is_reported_twice_counts_once(settle: Settle) -> None:
    [delivery] = claimed_deliveries(1)

    verdicts = settle([delivery, delivery])

    assert sorted(verdict is SettleVerdict.STALE for verdict in verdicts) == [False, True]


@pytest.mark.parametrize("settle", ALL)
def test_nothing_to_settle_is_no_error(settle: Settle) -> None:
    assert settle([]) == []


def test_a_claim_that_was_released_and_claimed_again_belongs_to_the_new_worker() -> None:
    [task_id] = register("mail")
    queue_runs("mail", 1)
    [old] = claim((task_id, 0), worker_id=register_worker())
    release([old.delivery])
    [new] = claim((task_id, 0), worker_id=register_worker())

    assert complete([old.delivery]) == [SettleVerdict.STALE]
    assert complete([new.delivery]) == [SettleVerdict.COMPLETED]
    assert new.delivery_count == 2


@pytest.mark.django_db(transaction=True)
def test_the_ids_of_a_batch_are_told_once_to_whoever_waits() -> None:
    """R9: NOTIFY is a hint."""
    from tests.support import second_session

    deliveries = claimed_deliveries(3)

    with second_session() as listener:
        listener.autocommit = True
        listener.execute("LISTEN cb_live")
        watch(timedelta(seconds=30), using=USING)
        complete(deliveries)
        heard = [notice.payload for notice in listener.notifies(timeout=5, stop_after=1)]

    assert heard == ["task_runs " + ",".join(str(delivery.run_id) for delivery in deliveries)]


@pytest.mark.django_db(transaction=True)
def test_ids_that_do_not_fit_into_a_notification_are_left_out() -> None:
    from tests.support import second_session

    deliveries = claimed_deliveries(4000)

    with second_session() as listener:
        listener.autocommit = True
        listener.execute("LISTEN cb_live")
        watch(timedelta(seconds=30), using=USING)
        complete(deliveries)
        heard = [notice.payload for notice in listener.notifies(timeout=5, stop_after=1)]

    assert heard == [""]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"status": "done"}, "status_known"),
        ({"priority": 101}, "priority_range"),
        ({"status": "started"}, "held_means_leased"),
        ({"status": "completed"}, "completed_has_output|terminal_means_finished"),
        ({"status": "failed"}, "failed_has_error|terminal_means_finished"),
        ({"status": "skipped"}, "terminal_means_finished"),
        ({"status": "canceled"}, "terminal_means_finished"),
        ({"status": "expired"}, "terminal_means_finished"),
        ({"finished_at": Now()}, "terminal_means_finished"),
        ({"failure_count": 1}, "counts_add_up"),
    ],
)
def test_the_database_refuses_what_cannot_be(change: dict[str, object], rule: str) -> None:
    """R8: what is final has ended, what is live has not; T3: and each has its time."""
    register("mail")
    queue_runs("mail", 1)

    with pytest.raises(IntegrityError, match=rule), transaction.atomic():
        TaskRun.objects.update(**change)


@pytest.mark.django_db(transaction=True)
def test_nobody_is_told_while_nobody_watches() -> None:
    """R9: to notify makes transactions wait for each other, so it is done only for somebody."""
    from tests.support import second_session

    first, second = claimed_deliveries(2)

    with second_session() as listener:
        listener.autocommit = True
        listener.execute("LISTEN cb_live")
        complete([first])
        watch(timedelta(seconds=30), using=USING)
        complete([second])
        heard = [notice.payload for notice in listener.notifies(timeout=5, stop_after=1)]

    assert heard == [f"task_runs {second.run_id}"]
