"""`sql/cancel.sql` (T12)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from catbird_django.engine import cancel, tasks
from catbird_django.engine.tasks import Delivery
from catbird_django.models import Task, TaskRun
from catbird_django.statuses import CancelVerdict, SettleVerdict
from tests.sql.test_settle_tasks import complete, extend, fail, release
from tests.sql.test_tick import expire_leases, tick_as
from tests.support import USING, claim, queue_runs, register, register_worker


def cancel_runs(*run_ids: int, reason: str = "not needed", actor: str = "kim") -> list[CancelVerdict]:
    return cancel.cancel_tasks(run_ids, reason=reason, actor=actor, notify=True, using=USING)


def held() -> Delivery:
    [task_id] = register("mail")
    queue_runs("mail", 1)
    [claimed] = claim((task_id, 0), worker_id=register_worker())
    return claimed.delivery


def test_a_queued_run_is_canceled_at_once_also_one_that_waits_for_its_time() -> None:
    register("mail")
    [due] = queue_runs("mail", 1)
    [later] = queue_runs("mail", 1, delay=timedelta(hours=1))

    assert cancel_runs(due, later) == [CancelVerdict.CANCELED] * 2

    for run in TaskRun.objects.all():
        assert (run.status, run.cancel_reason, run.canceled_by) == ("canceled", "not needed", "kim")
        assert run.finished_at is not None


def test_a_started_run_is_canceling_and_its_lease_goes_on() -> None:
    delivery = held()

    assert cancel_runs(delivery.run_id) == [CancelVerdict.CANCELING]
    assert extend([delivery]) == [SettleVerdict.CANCELING]

    run = TaskRun.objects.get()
    assert (run.status, run.finished_at) == ("canceling", None)


@pytest.mark.parametrize("settle", [complete, fail, release])
def test_whatever_a_canceling_run_reports_it_ends_canceled(
    settle: Callable[[list[Delivery]], list[SettleVerdict]],
) -> None:
    """A result that arrives meanwhile is dropped: canceled wins."""
    delivery = held()
    cancel_runs(delivery.run_id)

    assert settle([delivery]) == [SettleVerdict.CANCELED]

    run = TaskRun.objects.get()
    assert (run.status, run.output, run.lease_until, run.failure_count) == ("canceled", None, None, 0)
    assert settle([delivery]) == [SettleVerdict.STALE]


def test_canceling_again_or_what_has_ended_changes_nothing() -> None:
    delivery = held()
    cancel_runs(delivery.run_id, reason="first")
    assert cancel_runs(delivery.run_id, reason="second") == [CancelVerdict.CANCELING]
    complete([delivery])
    assert cancel_runs(delivery.run_id, reason="third") == [CancelVerdict.FINISHED]

    assert TaskRun.objects.get().cancel_reason == "first"


def test_a_completed_run_stays_completed() -> None:
    """R8."""
    delivery = held()
    complete([delivery])

    assert cancel_runs(delivery.run_id) == [CancelVerdict.FINISHED]
    assert TaskRun.objects.get().status == "completed"


def test_verdicts_come_in_the_order_given_and_name_the_unknown() -> None:
    register("mail")
    first, second = queue_runs("mail", 2)

    assert cancel_runs(second, 999_999, first) == [
        CancelVerdict.CANCELED,
        CancelVerdict.UNKNOWN,
        CancelVerdict.CANCELED,
    ]


def test_a_canceled_run_is_never_claimed() -> None:
    [task_id] = register("mail")
    ids = queue_runs("mail", 3)
    cancel_runs(ids[1])

    claims = claim((task_id, 0), worker_id=register_worker())

    assert [claimed.run_id for claimed in claims] == [ids[0], ids[2]]


def test_a_canceling_run_whose_worker_is_lost_is_canceled_not_run_again() -> None:
    delivery = held()
    cancel_runs(delivery.run_id)
    TaskRun.objects.update(lease_until=Now() - timedelta(seconds=1))

    tick_as(register_worker())

    run = TaskRun.objects.get()
    assert (run.status, run.lost_count) == ("canceled", 0)


def test_a_handler_that_does_not_stop_is_left_behind_after_the_grace() -> None:
    delivery = held()
    cancel_runs(delivery.run_id)
    tick_as(register_worker())
    assert TaskRun.objects.get().status == "canceling"

    TaskRun.objects.update(cancel_requested_at=Now() - timedelta(seconds=31))
    expire_leases()
    tick_as(TaskRun.objects.get().worker_id + 1)

    assert TaskRun.objects.get().status == "canceled"
    assert complete([delivery]) == [SettleVerdict.STALE]


def test_a_handler_may_cancel_its_own_run() -> None:
    """T7."""
    delivery = held()

    assert cancel.cancel_claimed_tasks([(delivery, "no such order")], notify=True, using=USING) == [
        SettleVerdict.CANCELED
    ]

    run = TaskRun.objects.get()
    assert (run.status, run.cancel_reason, run.canceled_by) == ("canceled", "no such order", "handler")


def test_a_canceled_run_frees_its_keys() -> None:
    """T4a."""
    register("mail")
    [first] = tasks.run_tasks("mail", ["1"], idempotency_keys=["k"], using=USING)
    cancel_runs(first.run_id or 0)

    [second] = tasks.run_tasks("mail", ["1"], idempotency_keys=["k"], using=USING)

    assert second.run_id != first.run_id


def held_by_one_that_may_finish() -> Delivery:
    delivery = held()
    Task.objects.update(on_cancel="finish")
    cancel_runs(delivery.run_id)
    return delivery


def test_a_handler_that_may_finish_is_told_nothing_and_its_result_counts() -> None:
    """T12: on_cancel="finish"."""
    delivery = held_by_one_that_may_finish()

    assert extend([delivery]) == [SettleVerdict.EXTENDED]
    assert complete([delivery]) == [SettleVerdict.COMPLETED]

    assert TaskRun.objects.get().status == "completed"


def test_a_handler_that_may_finish_has_no_grace() -> None:
    delivery = held_by_one_that_may_finish()
    TaskRun.objects.update(cancel_requested_at=Now() - timedelta(hours=1))

    tick_as(register_worker())

    assert TaskRun.objects.get().status == "canceling"
    assert complete([delivery]) == [SettleVerdict.COMPLETED]


@pytest.mark.parametrize("settle", [fail, release])
def test_a_handler_that_may_finish_gets_no_further_attempt(
    settle: Callable[[list[Delivery]], list[SettleVerdict]],
) -> None:
    delivery = held_by_one_that_may_finish()

    assert settle([delivery]) == [SettleVerdict.CANCELED]

    assert TaskRun.objects.get().status == "canceled"


def test_a_run_that_may_finish_ends_with_its_worker() -> None:
    held_by_one_that_may_finish()
    TaskRun.objects.update(lease_until=Now() - timedelta(seconds=1))

    tick_as(register_worker())

    assert TaskRun.objects.get().status == "canceled"
