"""`work_until_idle()` inside the transaction of a test, as in Django's TestCase (X4, X4a)."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction

from catbird_django import (
    Cancel,
    Flow,
    Optional,
    Skip,
    Snooze,
    StepContext,
    TaskContext,
    TaskFailure,
    cancel_task,
    task,
)
from catbird_django.engine.tick import tick
from catbird_django.models import RunLog, TaskRun, Worker
from catbird_django.statuses import FlowStatus, StepStatus, TaskStatus
from catbird_django.testing import NeverIdle, OtherWorker, assert_completed, assert_failed, work_until_idle
from tests.support import register_worker

pytestmark = pytest.mark.django_db


@dataclass
class Order:
    id: int
    total: float


@dataclass
class Approval:
    ok: bool


def groups() -> set[str]:
    return set(Group.objects.values_list("name", flat=True))


def test_a_task_runs_on_the_thread_and_in_the_transaction_of_the_test() -> None:
    @task
    def sign_up(input: str) -> str:
        Group.objects.create(name=input)
        assert connection.in_atomic_block
        return threading.current_thread().name

    handle = sign_up.run("birds")
    ran = work_until_idle()

    assert ran.names == ["sign_up"]
    assert handle.wait() == threading.current_thread().name
    assert groups() == {"birds"}


def test_nothing_runs_when_nothing_is_due() -> None:
    @task
    def later(input: int) -> int:
        return input

    handle = later.run(1, delay=timedelta(hours=1))

    assert not work_until_idle()
    assert handle.status() is TaskStatus.QUEUED


def test_what_handlers_queue_runs_too_highest_priority_first() -> None:
    @task
    def child(input: str) -> None: ...

    @task
    def parent(input: None) -> None:
        child.run("low")
        child.run("high", priority=10)

    parent.run()
    ran = work_until_idle()

    assert ran.names == ["parent", "child", "child"]
    low, high = TaskRun.objects.filter(task__name="child").order_by("id")
    assert [attempt.run_id for attempt in ran.of(child)] == [high.pk, low.pk]


def test_an_async_handler_reads_and_writes_what_the_test_does() -> None:
    """X4a: its calls of the ORM come back to the thread of the test."""

    @task
    async def count(input: str) -> int:
        await Group.objects.acreate(name=input)
        await asyncio.sleep(0)
        return await Group.objects.acount()

    Group.objects.create(name="cats")
    handle = count.run("birds")
    work_until_idle()

    assert assert_completed(handle) == 2
    assert groups() == {"cats", "birds"}


def test_what_a_handler_wrote_before_it_failed_stays_as_in_a_worker() -> None:
    @task
    def fall(input: str) -> None:
        Group.objects.create(name=input)
        with transaction.atomic():
            Group.objects.create(name="rolled back by itself")
            raise ValueError("no")

    handle = fall.run("birds")
    ran = work_until_idle()

    assert ran.outcomes == ["failed"]
    assert [attempt.error for attempt in ran.failures] == ["ValueError: no"]
    assert_failed(handle, "no")
    assert groups() == {"birds"}


def test_a_handler_that_breaks_the_transaction_breaks_only_its_own_part_of_it() -> None:
    """X4a: each handler in a savepoint."""

    @task
    def sign_up(input: str) -> None:
        Group.objects.create(name="undone")
        Group.objects.create(name=input)

    Group.objects.create(name="birds")
    bad, good = sign_up.run("birds"), sign_up.run("cats")
    ran = work_until_idle()

    assert ran.outcomes == ["failed", "completed"]
    assert "IntegrityError" in ran.failures[0].error
    assert (bad.status(), good.status()) == (TaskStatus.FAILED, TaskStatus.COMPLETED)
    assert groups() == {"birds", "undone", "cats"}


def test_a_handler_that_swallows_an_error_of_the_database_is_told_what_to_do() -> None:
    @task
    def sign_up(input: str) -> str:
        try:
            Group.objects.create(name=input)
        except IntegrityError:
            return "there already"
        return "new"

    Group.objects.create(name="birds")
    handle = sign_up.run("birds")
    work_until_idle()

    assert_failed(handle, "without atomic()")
    assert groups() == {"birds"}


def test_a_handler_may_ask_for_a_durable_transaction() -> None:
    @task
    def sign_up(input: str) -> None:
        with transaction.atomic(durable=True):
            Group.objects.create(name=input)

    sign_up.run("birds")

    assert work_until_idle().outcomes == ["completed"]


def test_on_commit_callbacks_of_a_handler_are_run_once(django_capture_on_commit_callbacks: Any) -> None:
    """X4a; and whoever captures callbacks around it does not run them again."""
    heard: list[str] = []

    @task
    def sign_up(input: str) -> None:
        with transaction.atomic():
            Group.objects.create(name=input)
            transaction.on_commit(lambda: transaction.on_commit(lambda: heard.append("second")))
            transaction.on_commit(lambda: heard.append(f"first, of {Group.objects.count()}"))

    transaction.on_commit(lambda: heard.append("of the test"))
    sign_up.run("birds")
    with django_capture_on_commit_callbacks(execute=True):
        work_until_idle()

    assert heard == ["first, of 1", "second"]


def test_callbacks_of_what_was_rolled_back_are_not_run() -> None:
    heard: list[str] = []

    @task
    def sign_up(input: str) -> None:
        transaction.on_commit(lambda: heard.append("kept"))
        try:
            with transaction.atomic():
                transaction.on_commit(lambda: heard.append("rolled back"))
                raise ValueError
        except ValueError:
            pass

    sign_up.run("birds")
    work_until_idle()

    assert heard == ["kept"]


def test_a_callback_that_fails_fails_the_attempt_unless_it_is_robust() -> None:
    @task
    def plan(input: bool) -> None:
        transaction.on_commit(lambda: Group.objects.create(name=None), robust=input)

    fragile, robust = plan.run(False), plan.run(True)
    work_until_idle()

    assert_failed(fragile, "null value")
    assert_completed(robust)


def test_a_flow_with_a_condition_and_a_signal_runs_step_by_step() -> None:
    orders = Flow("order")

    @orders.step
    def validate(input: Order) -> float:
        return input.total

    @orders.step(condition="validate gt 1000", signal=Approval)
    def approve(validate: float, signal: Approval) -> bool:
        return signal.ok

    @orders.step
    def ship(input: Order, approve: Optional[bool]) -> str:
        return f"shipped {input.id}, {approve.value if approve.is_set else 'nobody was asked'}"

    cheap, dear = orders.run(Order(1, 5)), orders.run(Order(2, 5000))
    ran = work_until_idle()

    assert ran.counts == {"order.validate": 2, "order.ship": 1}
    assert assert_completed(cheap) == "shipped 1, nobody was asked"
    assert dear.steps()["approve"] is StepStatus.WAITING_FOR_SIGNAL

    dear.signal("approve", Approval(ok=True), actor="kim")

    assert work_until_idle().names == ["order.approve", "order.ship"]
    assert assert_completed(dear) == "shipped 2, True"


def test_handlers_end_as_they_ask_to() -> None:
    """T7, F11: skipped, canceled, failed with everything that was still to do."""
    ends = Flow("ends")

    @ends.step
    def first(input: str, ctx: StepContext) -> str:
        if input == "cancel":
            raise Cancel("enough")
        return f"{ctx.flow} {ctx.attempt}"

    @ends.step(may_skip=True)
    def maybe(first: str) -> str:
        raise Skip("nothing to do")

    @ends.step
    def last(first: str, maybe: Optional[str]) -> str:
        return first

    runs = [ends.run(way) for way in ("cancel", "on")]
    ran = work_until_idle()

    assert [str(attempt) for attempt in ran if attempt.run_id == runs[0].id] == ["ends.first canceled"]
    assert [attempt.outcome for attempt in ran if attempt.run_id == runs[1].id] == ["completed", "skipped", "completed"]
    assert [run.status() for run in runs] == [FlowStatus.CANCELED, FlowStatus.COMPLETED]
    assert runs[1].wait() == "ends 1"


def test_on_fail_runs_after_the_last_failure() -> None:
    """T11."""
    told: list[TaskFailure[Any]] = []

    @task
    def tell(input: TaskFailure[int]) -> None:
        told.append(input)

    @task(on_fail=tell)
    def fall(input: int) -> None:
        raise ValueError("no")

    fall.run(7)
    ran = work_until_idle()

    assert ran.names == ["fall", "tell"]
    assert (told[0].input, told[0].error.message) == (7, "no")


def test_a_handler_sees_that_its_run_was_canceled_and_its_result_is_dropped() -> None:
    """T12: there is no lease keeper; the database is asked."""
    seen: list[bool] = []

    @task
    def stop(input: None, ctx: TaskContext) -> None:
        seen.append(ctx.is_canceled)
        cancel_task(ctx.run_id)
        seen.append(ctx.is_canceled)
        ctx.log("never said")

    handle = stop.run()
    ran = work_until_idle()

    assert seen == [False, True]
    assert handle.status() is TaskStatus.CANCELED
    assert ran.outcomes == ["canceled"]


def test_what_a_handler_says_is_stored() -> None:
    @task
    def count(input: int, ctx: TaskContext) -> None:
        ctx.log("begun")
        ctx.progress(1, input)

    handle = count.run(3)
    work_until_idle()

    assert RunLog.objects.get().message == "begun"
    assert TaskRun.objects.filter(pk=handle.id, progress__done=1, progress__total=3).exists()


def test_timeouts_and_processes_are_left_out() -> None:
    """Nobody could interrupt the thread of the test, and another process would not see its data."""

    @task(isolation="process", timeout=0.001)
    def count(input: None) -> int:
        return Group.objects.count()

    Group.objects.create(name="birds")
    handle = count.run()
    work_until_idle()

    assert assert_completed(handle) == 1


def test_an_input_that_does_not_fit_any_more_fails_its_run_and_calls_nobody() -> None:
    """T2a."""

    @task
    def take(input: int) -> None:
        raise AssertionError

    handle = take.run(5)
    TaskRun.objects.update(input="five")
    work_until_idle()

    assert_failed(handle, "input")


@pytest.mark.parametrize("again", ["by a new run", "by giving itself back"])
def test_a_task_that_never_ends_is_refused(again: str) -> None:
    @task
    def poll(input: None) -> None:
        if again == "by a new run":
            poll.run()
        else:
            raise Snooze(0)

    poll.run()

    with pytest.raises(NeverIdle, match=r"20 handlers .* poll 20 times.*at_most=20"):
        work_until_idle(at_most=20)


def test_the_limit_is_no_limit_for_what_ends_there() -> None:
    @task
    def count(input: int) -> None: ...

    count.run_many(range(20))

    assert len(work_until_idle(at_most=20)) == 20


def test_pressing_ctrl_c_in_a_handler_ends_the_test_and_not_the_attempt() -> None:
    @task
    def stuck(input: None) -> None:
        raise KeyboardInterrupt

    stuck.run()

    with pytest.raises(KeyboardInterrupt):
        work_until_idle()
    assert groups() == set()  # the transaction can still be used


def test_failing_the_test_in_a_handler_fails_the_test() -> None:
    @task
    def check(input: None) -> None:
        pytest.fail("seen")

    check.run()

    with pytest.raises(pytest.fail.Exception, match="seen"):
        work_until_idle()


def test_no_worker_is_left_behind_as_if_it_were_alive() -> None:
    work_until_idle()
    work_until_idle()

    assert Worker.objects.count() == 2
    assert not Worker.objects.filter(stopped_at=None).exists()


def test_a_worker_that_does_the_upkeep_already_is_not_disturbed() -> None:
    hour = timedelta(hours=1)
    tick(register_worker(), hold=hour, limit=1, cancel_grace=hour, using="default")

    with pytest.raises(OtherWorker, match="stop it"):
        work_until_idle()


def test_a_report_reads_well() -> None:
    @task
    def good(input: None) -> None: ...

    @task
    def bad(input: None) -> None:
        raise ValueError("no")

    good.run()
    first = work_until_idle()
    bad.run()
    second = work_until_idle()

    assert repr(first + second) == "<Ran good completed, bad failed (ValueError: no)>"
    assert (first + second).of("bad").names == ["bad"]
    assert repr(work_until_idle()) == "<Ran nothing>"
