"""Maps, reduces, inline and atomic steps, and early ends, worked off in the test (X4a, F6, F14-F16, F22)."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from catbird_django import Flow, complete_early
from catbird_django.models import StepRun
from catbird_django.testing import assert_completed, assert_failed, failing, replaced, simulate, work_until_idle

pytestmark = pytest.mark.django_db


def numbers() -> Flow[Any, Any]:
    flow = Flow("numbers")

    @flow.step
    def count(input: int) -> list[int]:
        return list(range(input))

    @flow.map(over="count", max_retries=2, backoff=(60, 60))
    def double(item: int) -> int:
        return item * 2

    @flow.reduce(over="double", initial=0)
    def total(acc: int, item: int) -> int:
        return acc + item

    return flow


def test_each_item_of_a_map_runs_for_itself() -> None:
    """F14, F15."""
    run = numbers().run(4)

    ran = work_until_idle()

    assert ran.counts == {"numbers.count": 1, "numbers.double": 4, "numbers.total": 1}
    assert [attempt.index for attempt in ran.of("numbers.double")] == [0, 1, 2, 3]
    assert "numbers.double[3] completed" in repr(ran)
    assert assert_completed(run) == 12


def test_an_item_that_fails_is_tried_again_in_virtual_time() -> None:
    run = numbers().run(3)

    with failing("numbers.double", ConnectionError, times=1):
        ran = simulate(run)

    assert [(attempt.index, attempt.outcome) for attempt in ran.of("numbers.double")] == [
        (0, "retrying"),
        (1, "completed"),
        (2, "completed"),
        (0, "completed"),
    ]
    assert assert_completed(run) == 6


def test_items_and_reduces_can_be_replaced() -> None:
    flow = numbers()
    first, second = flow.run(3), flow.run(3)

    with replaced("numbers.double", lambda item: item + 100, times=3):
        work_until_idle()
    assert assert_completed(second) == 6
    assert assert_completed(first) == 303

    third = flow.run(3)
    with replaced("numbers.total", output=7):
        work_until_idle()
    assert assert_completed(third) == 7


def test_an_async_step_reads_the_items_of_a_map_as_they_come() -> None:
    flow = Flow("streams")

    @flow.map(over="input")
    async def double(item: int, input: list[int]) -> int:
        return item * 2

    @flow.step
    async def collect(double: AsyncIterable[int]) -> list[int]:
        return [item async for item in double]

    run = flow.run([1, 2, 3])
    work_until_idle()

    assert assert_completed(run) == [2, 4, 6]


def test_an_inline_step_is_seen_like_any_other() -> None:
    """F6: without its handler in reach of its predecessor it is queued."""
    flow = Flow("short")

    @flow.step
    def first(input: int) -> int:
        return input + 1

    @flow.step(inline=True)
    def second(first: int) -> int:
        return first * 10

    run = flow.run(1)
    ran = work_until_idle()

    assert ran.names == ["short.first", "short.second"]
    assert assert_completed(run) == 20


def atomic_flow(heard: list[str]) -> Flow[Any, Any]:
    flow = Flow("books")

    @flow.step(atomic=True, max_retries=1, backoff=(60, 60))
    def book(input: str) -> int:
        Group.objects.create(name=input)
        transaction.on_commit(lambda: heard.append(run_status()))
        if input == "bad":
            raise ValueError("no")
        return Group.objects.count()

    def run_status() -> str:
        return str(StepRun.objects.latest("id").status)

    return flow


def test_an_atomic_step_is_completed_before_its_callbacks_are_called() -> None:
    """F22."""
    heard: list[str] = []
    run = atomic_flow(heard).run("birds")

    assert work_until_idle().outcomes == ["completed"]
    assert assert_completed(run) == 1
    assert heard == ["completed"]


def test_a_callback_that_fails_after_an_atomic_step_cannot_undo_it(caplog: pytest.LogCaptureFixture) -> None:
    """F22: as with a worker, which has committed by then."""
    flow = Flow("books")

    @flow.step(atomic=True)
    def book(input: str) -> None:
        Group.objects.create(name=input)
        transaction.on_commit(lambda: Group.objects.create(name=input))

    run = flow.run("birds")
    work_until_idle()

    assert_completed(run)
    assert Group.objects.get().name == "birds"
    assert "an on-commit callback of an atomic step failed" in caplog.messages


def test_what_an_atomic_step_wrote_before_it_failed_is_undone() -> None:
    """F22."""
    heard: list[str] = []
    run = atomic_flow(heard).run("bad")

    assert simulate(run).outcomes == ["retrying", "failed"]
    assert_failed(run, "no")
    assert (heard, Group.objects.count()) == ([], 0)


def test_a_step_may_end_its_flow() -> None:
    """F16."""
    flow = Flow("early")

    @flow.step
    def first(input: int) -> int:
        complete_early(input * 2, "enough")

    @flow.step
    def second(first: int) -> int:
        raise AssertionError

    run = flow.run(4)

    assert work_until_idle().names == ["early.first"]
    assert assert_completed(run) == 8
