"""Flows with a real worker, from `.run()` to the end (F1, F4, F7, F8, F10-F12, F17, F18, F20, T7, T8, W7)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from catbird_django import (
    Cancel,
    Flow,
    FlowFailed,
    Optional,
    Retry,
    RunCanceled,
    Skip,
    Snooze,
    StepContext,
    task,
)
from catbird_django.engine.steps import claim_steps
from catbird_django.engine.tasks import Lane, LaneRequest
from catbird_django.models import FlowRun, RunLog, Step, StepRun, TaskRun, Worker
from catbird_django.statuses import FlowStatus
from catbird_django.worker.outcome import Completed
from catbird_django.worker.settlement import Settlement
from tests.support import LEASE, USING, register_worker, until, work_off, working

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Order:
    id: int
    total: float


@dataclass
class Check:
    total: float


@dataclass
class Approval:
    by: str
    ok: bool


def statuses(run_id: int) -> dict[str, str]:
    steps = StepRun.objects.filter(flow_run_id=run_id).select_related("step")
    return {one.step.name: one.status for one in steps}


def step_run(run_id: int, name: str) -> StepRun:
    return StepRun.objects.get(flow_run_id=run_id, step__name=name)


def order_flow() -> Flow[Any, Any]:
    orders = Flow("order")

    @orders.step
    def validate(input: Order) -> Check:
        return Check(total=input.total)

    @orders.step(condition="validate.total gt 1000", signal=Approval)
    def approve(validate: Check, signal: Approval) -> bool:
        assert isinstance(validate, Check)
        return signal.ok

    @orders.step(condition="not approve exists or approve")
    def ship(input: Order, approve: Optional[bool]) -> str:
        return f"shipped {input.id}" if approve.is_set else f"shipped {input.id} without asking"

    @orders.step(condition="approve exists and not approve")
    def refund(input: Order, approve: Optional[bool]) -> str:
        return f"refunded {input.id}"

    return orders


def test_the_example_of_the_specification_runs_as_it_stands() -> None:
    """F1, F8, F10, F11, F12."""
    orders = order_flow()

    with working(concurrency=4):
        run = orders.run(Order(id=1, total=5000.0))
        run.signal("approve", Approval(by="kim", ok=True))
        assert run.wait(timeout=10) == "shipped 1"
        assert orders.run(Order(id=2, total=5.0)).wait(timeout=10) == "shipped 2 without asking"
        refused = orders.run(Order(id=3, total=5000.0))
        until(lambda: statuses(refused.id)["approve"] == "waiting_for_signal")
        refused.signal("approve", Approval(by="kim", ok=False))
        assert refused.wait(timeout=10) == "refunded 3"

    assert statuses(refused.id)["ship"] == "skipped"


def test_branches_of_a_diamond_run_at_the_same_time_and_are_joined() -> None:
    """F7."""
    diamond = Flow("diamond")
    together = threading.Barrier(2, timeout=10)

    @diamond.step
    def start(input: int) -> int:
        return input

    @diamond.step
    def left(start: int) -> int:
        together.wait()
        return start + 1

    @diamond.step
    def right(start: int, input: int) -> int:
        together.wait()
        return start * 10 + input

    @diamond.step
    def join(left: int, right: int) -> list[int]:
        return [left, right]

    run = diamond.run(2)
    work_off(concurrency=2)

    assert run.wait(timeout=5) == [3, 22]


def test_arguments_come_by_name_in_their_types_and_exactly_as_they_were_written() -> None:
    """F1, F5, T2."""
    flow = Flow("typed")

    @flow.step
    def price(input: Order) -> Decimal:
        return Decimal("1234567890.123456789012345678")

    @flow.step
    def named(input: Order) -> dict[str, Any]:
        return {'a "quoted" key': [1, 2.50, None, {"deep": "}, {"}]}

    @flow.step(depends_on=["price", "named"])
    def both(*, amount: Decimal, other: dict[str, Any], ctx: StepContext, input: Order) -> str:
        assert (ctx.flow, ctx.step, ctx.attempt, ctx.headers) == ("typed", "both", 1, {"trace": "abc"})
        assert other == {'a "quoted" key': [1, 2.50, None, {"deep": "}, {"}]}
        return f"{input.id}: {amount}"

    run = flow.run(Order(id=7, total=1.0), headers={"trace": "abc"})
    work_off()

    assert run.wait(timeout=5) == "7: 1234567890.123456789012345678"


def test_async_steps_run_beside_sync_ones() -> None:
    """W7: with database access of their own."""
    flow = Flow("mixed")

    @flow.step
    async def first(input: int) -> int:
        await asyncio.sleep(0.01)
        return input + await sync_to_async(FlowRun.objects.count)()

    @flow.step
    def second(first: int) -> int:
        return first * 10

    @flow.step
    async def third(second: int) -> int:
        return second + 1

    runs = [flow.run(number) for number in range(5)]
    work_off()

    assert [run.wait(timeout=5) for run in runs] == [51, 61, 71, 81, 91]


def test_a_step_is_tried_again_and_its_predecessors_are_not() -> None:
    """T7, T7a."""
    calls: Counter[str] = Counter()
    flow = Flow("flaky")

    @flow.step
    def fetch(input: int) -> int:
        calls["fetch"] += 1
        return input

    @flow.step(max_retries=3, backoff=(0.01, 0.02))
    def parse(fetch: int, ctx: StepContext) -> int:
        calls["parse"] += 1
        if ctx.attempt == 1:
            raise ConnectionError("not yet")
        if ctx.attempt == 2:
            raise Retry("still not", after=0.01)
        return ctx.attempt

    with working():
        run = flow.run(1)
        assert run.wait(timeout=15) == 3

    assert calls == {"fetch": 1, "parse": 3}
    assert step_run(run.id, "parse").failure_count == 2


def test_a_step_that_fails_for_good_fails_the_run_and_its_on_fail_task_is_told() -> None:
    """F18, T11."""
    told: list[Any] = []

    @task
    def clean_up(input: dict[str, Any]) -> None:
        told.append(input)

    flow = Flow("doomed", on_fail=clean_up)

    @flow.step
    def fetch(input: int) -> int:
        return input + 1

    @flow.step(max_retries=1, backoff=(0.01, 0.01))
    def parse(fetch: int) -> int:
        raise ValueError("no such order")

    @flow.step
    def never(parse: int) -> int:
        raise AssertionError

    with working():
        run = flow.run(1)
        with pytest.raises(FlowFailed, match="no such order"):
            run.wait(timeout=15)
        until(lambda: told)

    assert statuses(run.id) == {"fetch": "completed", "parse": "failed", "never": "canceled"}
    assert (told[0]["run_id"], told[0]["step"], told[0]["step_input"]) == (run.id, "parse", {"fetch": 2})
    assert told[0]["error"]["message"] == "no such order"


def test_a_step_may_skip_itself_and_what_needs_it_goes_without() -> None:
    """F11."""
    flow = Flow("shy")

    @flow.step(may_skip=True)
    def maybe(input: int) -> int:
        if input == 0:
            raise Skip("nothing there")
        return input

    @flow.step
    def last(maybe: int | None) -> str:
        return f"got {maybe}"

    nothing, something = flow.run(0), flow.run(4)
    work_off()

    assert (nothing.wait(timeout=5), something.wait(timeout=5)) == ("got None", "got 4")
    skipped = step_run(nothing.id, "maybe")
    assert (skipped.status, skipped.skip_reason, skipped.skip_message) == ("skipped", "handler", "nothing there")


def test_a_step_that_may_not_skip_itself_fails_and_says_so() -> None:
    """F11."""
    flow = Flow("bold")

    @flow.step
    def first(input: int) -> int:
        raise Skip("nothing there")

    @task
    def lone() -> None:
        raise Skip("nothing there")

    run, other = flow.run(1), lone.run()
    work_off()

    with pytest.raises(FlowFailed, match="may_skip=True"):
        run.wait(timeout=5)
    assert "only a step" in TaskRun.objects.get(pk=other.id).error["message"]


def test_cancel_raised_in_a_step_cancels_the_flow() -> None:
    """T7."""
    flow = Flow("given_up")

    @flow.step
    def first(input: int) -> int:
        raise Cancel("no longer wanted")

    @flow.step
    def second(first: int) -> int:
        raise AssertionError

    run = flow.run(1)
    work_off()

    with pytest.raises(RunCanceled):
        run.wait(timeout=5)
    ended = FlowRun.objects.get(pk=run.id)
    assert (ended.status, ended.cancel_reason) == ("canceled", "no longer wanted")
    assert statuses(run.id) == {"first": "canceled", "second": "canceled"}


def test_a_snoozed_step_comes_back_and_nothing_is_counted() -> None:
    """T7a."""
    flow = Flow("sleepy")
    calls: list[int] = []

    @flow.step
    def first(input: int, ctx: StepContext) -> int:
        calls.append(ctx.attempt)
        if len(calls) == 1:
            raise Snooze(0.05)
        return input

    with working():
        run = flow.run(5)
        assert run.wait(timeout=15) == 5

    assert calls == [1, 1]
    assert step_run(run.id, "first").failure_count == 0


def test_a_step_that_takes_too_long_is_stopped_sync_and_async() -> None:
    """T8."""
    flow = Flow("slow", output=["sync_one"])

    @flow.step(timeout=0.2, on_exhausted="skip")
    def sync_one(input: int) -> int:
        while True:
            time.sleep(0.01)

    @flow.step(timeout=0.2, on_exhausted="skip")
    async def async_one(input: int) -> int:
        await asyncio.sleep(60)
        return 1

    @flow.step
    def last(sync_one: int | None, async_one: int | None) -> str:
        return f"{sync_one} {async_one}"

    run = flow.run(1)
    work_off()

    assert statuses(run.id) == {"sync_one": "skipped", "async_one": "skipped", "last": "completed"}
    for name in ("sync_one", "async_one"):
        assert step_run(run.id, name).error["type"] == "HandlerTimeout"


@pytest.mark.parametrize("is_early", [True, False])
def test_a_signal_may_come_before_or_after_what_else_the_step_needs(is_early: bool) -> None:
    """F12."""
    flow = Flow("asks")
    goes_on = threading.Event()

    @flow.step
    def prepare(input: int) -> int:
        assert goes_on.wait(10)
        return input

    @flow.step(signal=Approval)
    def decide(prepare: int, signal: Approval) -> str:
        return f"{signal.by} says {signal.ok} to {prepare}"

    @flow.step(signal=Approval)
    def at_once(signal: Approval) -> str:
        return signal.by

    with working(concurrency=2):
        run = flow.run(3)
        if is_early:
            run.signal("decide", Approval(by="kim", ok=True))
            goes_on.set()
        else:
            goes_on.set()
            until(lambda: statuses(run.id)["decide"] == "waiting_for_signal")
            run.signal("decide", Approval(by="kim", ok=True))
        run.signal("at_once", {"by": "lee", "ok": False})
        assert run.wait(timeout=10) == "kim says True to 3"


def test_a_delayed_step_is_run_when_its_time_has_come() -> None:
    """F20: a durable sleep holds no slot."""
    flow = Flow("later")

    @flow.step
    def first(input: int) -> float:
        return time.monotonic()

    @flow.step(delay=0.3)
    def second(first: float) -> float:
        return time.monotonic() - first

    with working():
        assert flow.run(1).wait(timeout=15) >= 0.3


def test_a_sync_step_of_a_canceled_run_is_told_and_its_result_dropped() -> None:
    """F17, T12."""
    flow = Flow("stops")
    began, was_told = threading.Event(), threading.Event()

    @flow.step
    def loops(input: int, ctx: StepContext) -> int:
        began.set()
        until(lambda: ctx.is_canceled)
        was_told.set()
        return 1

    @flow.step
    def after(loops: int) -> int:
        raise AssertionError

    with working():
        run = flow.run(1)
        assert began.wait(10)
        assert run.cancel(reason="enough") in {FlowStatus.CANCELING, FlowStatus.CANCELED}
        with pytest.raises(RunCanceled):
            run.wait(timeout=10)

    assert was_told.is_set()
    assert statuses(run.id) == {"loops": "canceled", "after": "canceled"}


@pytest.mark.parametrize("is_async", [True, False])
def test_the_siblings_of_a_failed_step_are_stopped(is_async: bool) -> None:
    """R8a, W2: their claims are void, and the worker stops their handlers at once."""
    flow = Flow("siblings")
    began, was_stopped = threading.Event(), threading.Event()

    @flow.step
    def fails(input: int) -> int:
        assert began.wait(10)
        raise ValueError("no")

    if is_async:

        @flow.step
        async def works(input: int) -> int:
            began.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                was_stopped.set()
                raise
            return 1
    else:

        @flow.step(name="works")
        def works_on(input: int, ctx: StepContext) -> int:
            began.set()
            until(lambda: ctx.is_canceled)
            was_stopped.set()
            return 1

    with working(concurrency=2):
        run = flow.run(1)
        with pytest.raises(FlowFailed):
            run.wait(timeout=10)
        assert was_stopped.wait(10)

    assert statuses(run.id) == {"fails": "failed", "works": "canceled"}


def test_what_a_step_says_is_stored_with_it() -> None:
    """T14."""
    flow = Flow("talks")

    @flow.step
    def first(input: int, ctx: StepContext) -> int:
        ctx.progress(1, 2, "half")
        ctx.log("working on it", level="warning")
        return input

    @task
    def beside(input: int, ctx: Any) -> int:
        ctx.log("from a task")
        return input

    run = flow.run(1)
    beside.run(1)
    work_off()

    ran = step_run(run.id, "first")
    assert (ran.progress["done"], ran.progress["message"]) == (1, "half")
    lines = RunLog.objects.values_list("run_kind", "run_id", "level", "message").order_by("run_kind")
    assert lines[0] == ("step", ran.pk, "warning", "working on it")
    assert [line[0] for line in lines] == ["step", "task"]


def test_a_worker_says_which_steps_it_can_run_and_runs_only_the_flows_it_is_told_to() -> None:
    """W1."""
    one, other = Flow("one"), Flow("other")

    @one.step
    def only(input: int) -> int:
        return input

    @other.step(name="only")
    def only_too(input: int) -> int:
        return input

    @task
    def beside() -> None: ...

    runs = one.run(1), other.run(1), beside.run()
    worker = work_off(flows=["one"])

    assert worker.handler_names == ["one.only"]
    assert Worker.objects.get(pk=worker.id).handlers == ["one.only"]
    assert [run.status() for run in runs] == ["completed", "started", "queued"]


def test_more_important_and_older_work_comes_first_whatever_its_kind() -> None:
    """T4b."""
    order: list[str] = []
    flow = Flow("mixed")

    @flow.step
    def step(input: str) -> None:
        order.append(input)

    @task
    def mail(input: str) -> None:
        order.append(input)

    mail.run("1st task")
    flow.run("1st flow")
    mail.run("2nd task", priority=1)
    flow.run("2nd flow", priority=2)
    work_off(concurrency=1, prefetch=0)  # what a handler has just finished would be claimed ahead

    assert order == ["2nd flow", "2nd task", "1st task", "1st flow"]


def test_steps_share_the_concurrency_of_their_handler() -> None:
    """T10."""
    flow = Flow("narrow")
    most, now = 0, 0
    lock = threading.Lock()

    @flow.step(concurrency=1)
    def one_at_a_time(input: int) -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1

    flow.run_many(range(10))
    work_off(concurrency=4)

    assert most == 1
    assert FlowRun.objects.filter(status="completed").count() == 10


def test_two_workers_that_complete_the_predecessors_of_one_join_run_it_once() -> None:
    """F3: in two hundred runs."""
    flow = Flow("joined")
    joined: Counter[int] = Counter()

    @flow.step
    def left(input: int) -> int:
        return input

    @flow.step
    async def right(input: int) -> int:
        return input

    @flow.step
    def join(left: int, right: int) -> int:
        joined[left] += 1
        return left + right

    runs = flow.run_many(range(200))
    with working(concurrency=2), working(concurrency=2):
        assert [run.wait(timeout=60) for run in runs] == [2 * number for number in range(200)]

    assert joined == Counter(range(200))
    workers = StepRun.objects.values_list("worker_id", flat=True).distinct()
    assert len(set(workers)) == 2


def test_an_output_that_cannot_be_stored_fails_its_run_and_no_other() -> None:
    """T2a."""
    flow = Flow("poison")

    @flow.step
    def only(input: int) -> Any:
        return {"n": "\x00" if input == 3 else input}

    runs = flow.run_many(range(6))
    work_off()

    assert [run.status() for run in runs] == ["failed" if number == 3 else "completed" for number in range(6)]


def test_a_result_that_the_database_refuses_fails_its_run_and_the_neighbours_complete() -> None:
    """F4a."""
    flow = Flow("refused")

    @flow.step
    def only(input: int) -> int: ...

    runs = flow.run_many(range(3))
    [step_id] = Step.objects.values_list("pk", flat=True)
    request = LaneRequest(Lane("default", -step_id, 0), 0, 3)
    claims = claim_steps([request], worker_id=register_worker(), lease=LEASE, using=USING)
    let_go: list[Any] = []
    part = Settlement(using=USING, notify=False, settled=let_go.extend)
    part.start()

    for held in sorted(claims):
        # Valid JSON, and in the second more than jsonb can hold.
        part.add(Completed(held, '{"n": 1e200000}' if held.flow_run_id == runs[1].id else "1"))
    assert part.stop(timeout=20)

    assert [run.status() for run in runs] == ["completed", "failed", "completed"]
    assert sorted(let_go) == sorted(held.delivery for held in claims)


def test_a_step_that_has_lost_its_worker_twice_is_claimed_alone_and_run() -> None:
    """T7a."""
    flow = Flow("suspect")
    beside: list[int] = []

    @flow.step
    def only(input: int, ctx: StepContext) -> int:
        beside.append(StepRun.objects.filter(status="started").count())
        return ctx.attempt

    suspect, *others = flow.run_many(range(4))
    StepRun.objects.filter(flow_run_id=suspect.id).update(lost_count=2, delivery_count=2)
    work_off(concurrency=1)

    assert suspect.wait(timeout=5) == 3
    assert [run.wait(timeout=5) for run in others] == [1, 1, 1]
    assert step_run(suspect.id, "only").delivery_count == 3


def test_a_step_that_loses_its_worker_too_often_fails_its_run() -> None:
    """T7a."""
    flow = Flow("deadly")

    @flow.step(max_lost=1)
    def only(input: int) -> int: ...

    run = flow.run(1)
    [step_id] = Step.objects.values_list("pk", flat=True)
    request = LaneRequest(Lane("default", -step_id, 0), 0, 1)
    claim_steps([request], worker_id=register_worker(), lease=-LEASE, using=USING)
    StepRun.objects.update(lost_count=1, delivery_count=2)
    work_off()

    with pytest.raises(FlowFailed, match="lost its worker 2 times"):
        run.wait(timeout=5)
