"""Reduces with a real worker (F15)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from catbird_django import Flow, FlowFailed, ItemError, Optional, StepContext
from catbird_django.models import Item, StepRun
from tests.support import until, work_off, working

pytestmark = pytest.mark.django_db(transaction=True)


def step_run(run_id: int, name: str) -> StepRun:
    return StepRun.objects.get(flow_run_id=run_id, step__name=name)


def doubling(**options: Any) -> Flow[Any, Any]:
    flow = Flow("numbers", input=list[int])

    @flow.map(over="input", **options)
    def double(item: int) -> int:
        if item < 0:
            raise ValueError(f"{item} is negative")
        return item * 2

    return flow


@pytest.mark.parametrize("count", [0, 1, 700])
@pytest.mark.parametrize("is_async", [False, True])
def test_the_outputs_of_a_map_are_reduced_in_order(is_async: bool, count: int) -> None:
    flow = doubling()

    def joined(acc: str, item: int, input: list[int], ctx: StepContext) -> str:
        return f"{acc},{item}/{len(input)}/{ctx.attempt}"

    async def joined_async(acc: str, item: int, input: list[int], ctx: StepContext) -> str:
        return joined(acc, item, input, ctx)

    flow.reduce(over="double", initial="", name="joined")(joined_async if is_async else joined)
    run = flow.run(list(range(count)))
    work_off()

    assert run.wait(timeout=5) == "".join(f",{number * 2}/{count}/1" for number in range(count))


def test_lists_of_steps_and_the_input_are_reduced() -> None:
    flow = Flow("words", input=list[str])

    @flow.step
    def halves(input: list[str]) -> list[str]:
        return [half for word in input for half in (word[:1], word[1:])]

    @flow.reduce(over="halves", initial=[])
    def turned(acc: list[str], item: str) -> list[str]:
        return [item, *acc]

    @flow.reduce(over="input", initial=0)
    async def length(acc: int, item: str) -> int:
        await asyncio.sleep(0)
        return acc + len(item)

    @flow.step
    def both(turned: list[str], length: int) -> list[Any]:
        return [turned, length]

    runs = [flow.run(["cat", "bird"]), flow.run([])]
    work_off()

    assert [run.wait(timeout=5) for run in runs] == [[["ird", "b", "at", "c"], 7], [[], 0]]


@pytest.mark.parametrize("value", [None, {"a": 1}])
def test_a_reduce_over_what_is_no_list_fails(value: Any) -> None:
    flow = Flow("no_list")

    @flow.step
    def make(input: Any) -> Any:
        return input

    @flow.reduce(over="make", initial=0)
    def total(acc: int, item: int) -> int:
        return acc + item

    run = flow.run(value)
    work_off()

    with pytest.raises(FlowFailed, match="expected a list"):
        run.wait(timeout=5)


def test_a_reduce_that_fails_begins_anew_and_items_are_not_run_again() -> None:
    flow = doubling()
    seen: list[int] = []

    @flow.reduce(over="double", initial=[], max_retries=1, backoff=(0, 0))
    def gathered(acc: list[int], item: int, ctx: StepContext) -> list[int]:
        seen.append(item)
        if item == 4 and ctx.attempt == 1:
            raise ValueError("not yet")
        acc.append(item)
        return acc

    run = flow.run([1, 2, 3])
    with working():
        assert run.wait(timeout=10) == [2, 4, 6]

    assert seen == [2, 4, 2, 4, 6]
    assert set(Item.objects.values_list("delivery_count", flat=True)) == {1}


def test_errors_of_items_are_reduced_with_the_others() -> None:
    flow = doubling(on_item_failure="collect")

    @flow.reduce(over="double", initial="")
    def shown(acc: str, item: int | ItemError) -> str:
        return f"{acc}[{item.message if isinstance(item, ItemError) else item}]"

    run = flow.run([1, -2, 3])
    work_off()

    assert run.wait(timeout=5) == "[2][-2 is negative][6]"


def test_a_reduce_over_a_map_that_was_skipped_is_skipped_too() -> None:
    """F11."""
    flow = Flow("numbers", input=list[int])

    @flow.step(condition="input[0] gt 1")
    def some(input: list[int]) -> list[int]:
        return input

    @flow.map(over="some")
    def double(item: int) -> int:
        return item * 2

    @flow.reduce(over="double", initial=0)
    def total(acc: int, item: int) -> int:
        return acc + item

    @flow.step
    def shown(total: Optional[int]) -> str:
        return str(total.value) if total.is_set else "nothing"

    runs = [flow.run([2]), flow.run([1])]
    work_off()

    assert [run.wait(timeout=5) for run in runs] == ["4", "nothing"]


@pytest.mark.parametrize("is_async", [False, True])
def test_the_timeout_is_that_of_the_whole_reduce(is_async: bool) -> None:
    """T8."""
    flow = doubling()

    def slow(acc: int, item: int) -> int:
        import time

        time.sleep(0.02)
        return acc + item

    async def slow_async(acc: int, item: int) -> int:
        await asyncio.sleep(0.02)
        return acc + item

    flow.reduce(over="double", initial=0, timeout=0.3, name="slow")(slow_async if is_async else slow)
    run = flow.run([1] * 200)
    work_off()

    with pytest.raises(FlowFailed, match=r"took longer than 0\.3 s"):
        run.wait(timeout=5)


def test_a_canceled_reduce_stops_before_its_next_item() -> None:
    """F17: though its function never looks."""
    flow = doubling()
    seen: list[int] = []

    @flow.reduce(over="double", initial=0)
    async def endless(acc: int, item: int) -> int:
        seen.append(item)
        await asyncio.sleep(0.05)
        return acc

    with working():
        run = flow.run([1] * 400)
        until(lambda: seen)
        run.cancel()
        until(lambda: run.status() == "canceled")

    assert len(seen) < 400
    assert step_run(run.id, "endless").status == "canceled"
