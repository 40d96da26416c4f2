"""Flows in virtual time, with things that fail on purpose (X4)."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from catbird_django import Flow, Retry, Snooze, StepContext, TaskContext, UnknownName, task
from catbird_django.statuses import FlowStatus, StepStatus
from catbird_django.testing import (
    NeverIdle,
    assert_completed,
    assert_failed,
    failing,
    replaced,
    simulate,
    work_until_idle,
)

pytestmark = pytest.mark.django_db


def order_flow() -> Flow[Any, Any]:
    orders = Flow("order", deadline=timedelta(days=30))

    @orders.step(max_retries=3, backoff=lambda failures: failures * 3600)
    def reserve(input: int) -> int:
        return input * 2

    @orders.step(delay=timedelta(days=3), max_retries=1, backoff=(60, 60))
    def remind(reserve: int, ctx: StepContext) -> str:
        return f"{reserve} things, attempt {ctx.attempt}"

    @orders.step(signal=bool)
    def ship(remind: str, signal: bool) -> str:
        return f"{remind}: {'shipped' if signal else 'kept'}"

    return orders


def test_days_pass_in_no_time() -> None:
    run = order_flow().run(2)
    run.signal("ship", True)
    began = time.monotonic()

    ran = simulate(run)

    assert assert_completed(run) == "4 things, attempt 1: shipped"
    assert ran.names == ["order.reserve", "order.remind", "order.ship"]
    assert timedelta(days=3) - timedelta(minutes=1) < ran.passed <= timedelta(days=3)
    assert time.monotonic() - began < 30


def test_a_step_can_be_made_to_fail_and_is_tried_again() -> None:
    """Injected failures go through the retries of the step, like those of its handler."""
    run = order_flow().run(2)
    run.signal("ship", True)

    with failing("order.reserve", ConnectionError("away"), times=2) as outage:
        ran = simulate(run)

    assert outage.count == 2
    assert ran.of("order.reserve").outcomes == ["retrying", "retrying", "completed"]
    assert [attempt.error for attempt in ran.failures] == ["ConnectionError: away"] * 2
    assert timedelta(days=3, hours=2, minutes=59) < ran.passed <= timedelta(days=3, hours=3)
    assert assert_completed(run).endswith("shipped")


def test_a_step_that_always_fails_fails_its_flow() -> None:
    run = order_flow().run(2)

    with failing("order.reserve", OSError):
        ran = simulate(run)

    assert ran.outcomes == ["retrying"] * 3 + ["failed"]
    assert assert_failed(run, "in step 'reserve'").error["type"] == "OSError"


def test_it_stops_where_time_brings_nothing_and_goes_on_after_the_signal() -> None:
    flow = Flow("asks")

    @flow.step(delay=60)
    def prepare(input: int) -> int:
        return input

    @flow.step(signal=bool)
    def decide(prepare: int, signal: bool) -> int:
        return prepare if signal else 0

    run = flow.run(7)
    assert simulate(run).names == ["asks.prepare"]
    assert run.steps()["decide"] is StepStatus.WAITING_FOR_SIGNAL

    run.signal("decide", True)

    assert simulate(run).names == ["asks.decide"]
    assert assert_completed(run) == 7


def test_nobody_decides_and_the_deadline_comes() -> None:
    """F20."""
    run = order_flow().run(2)

    ran = simulate(run)

    assert ran.names == ["order.reserve", "order.remind"]
    assert_failed(run, "deadline")
    assert ran.passed > timedelta(days=29)


def test_no_more_time_passes_than_it_may() -> None:
    run = order_flow().run(2)

    ran = simulate(run, within=timedelta(days=10))

    assert run.status() is FlowStatus.STARTED
    assert ran.names == ["order.reserve", "order.remind"]
    assert ran.passed <= timedelta(days=10)


def test_tasks_can_be_simulated_too() -> None:
    """T7: Snooze and Retry with their own delays, and a breaker's rest (T9)."""

    @task(max_retries=5, breaker=(1, 600))
    def visit(input: str, ctx: TaskContext) -> int:
        return ctx.attempt

    run = visit.run("bank", delay=60)
    with failing(visit, Retry(after=30), times=1), failing(visit, Snooze(300), times=1):
        ran = simulate(run)

    assert ran.outcomes == ["released", "retrying", "completed"]
    assert assert_completed(run) == 2
    assert timedelta(seconds=950) < ran.passed < timedelta(seconds=1000)


def test_a_task_that_puts_itself_off_for_ever_is_refused() -> None:
    @task
    def poll(input: None) -> None:
        raise Snooze(3600)

    with pytest.raises(NeverIdle, match="poll 30 times"):
        simulate(poll.run(), at_most=30)


def test_a_substitute_gets_the_arguments_and_its_output_is_checked() -> None:
    """T2a: a wrong output fails the run, whoever made it."""

    @task
    def add(input: int, ctx: TaskContext) -> int:
        raise AssertionError

    async def twice(number: int, ctx: TaskContext) -> int:
        return number * 2 + ctx.attempt

    good, constant, bad = add.run(4), add.run(0), add.run(1)
    with (
        replaced("add", output="eleven"),
        replaced("add", output=11, times=1),
        replaced(add, twice, times=1) as substitute,
    ):
        work_until_idle()

    assert [assert_completed(run) for run in (good, constant)] == [9, 11]
    assert_failed(bad, "output")
    assert substitute.count == 1


def test_a_substitute_of_a_step_gets_its_arguments_by_name() -> None:
    flow = Flow("sum")

    @flow.step
    def first(input: int) -> int:
        return input

    @flow.step
    def second(input: int, first: int) -> int:
        return input + first

    def product(first: int, input: int) -> int:
        return first * input

    run = flow.run(5)
    with replaced(second, product), replaced(first, output=3):
        simulate(run)

    assert assert_completed(run) == 15


def test_after_its_block_a_handler_is_itself_again() -> None:
    @task
    def add(input: int) -> int:
        return input + 1

    with failing(add, OSError):
        first = add.run(1)
        work_until_idle()
    second = add.run(1)
    work_until_idle()

    assert_failed(first)
    assert assert_completed(second) == 2


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("order.reserv", "did you mean 'order.reserve'"),
        ("reserve", "did you mean 'order.reserve'"),
        ("elsewhere", "there are: order.remind, order.reserve, order.ship"),
    ],
)
def test_a_name_that_nothing_has_is_refused_with_a_suggestion(name: str, hint: str) -> None:
    order_flow()

    with pytest.raises(UnknownName, match=hint), failing(name, OSError):
        raise AssertionError
    with pytest.raises(UnknownName, match=hint):
        work_until_idle().of(name)


def test_a_substitute_is_a_function_or_an_output() -> None:
    @task
    def add(input: int) -> int:
        return input

    for wrong in ({}, {"by": add, "output": 1}):
        with pytest.raises(TypeError, match="either"), replaced(add, **wrong):
            raise AssertionError
