"""Maps with a real worker: items, their order, their failures, and who takes their outputs (F14, F14a, F11, T7, T8)."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from catbird_django import Cancel, Flow, FlowFailed, ItemError, Optional, RunCanceled, Skip, Snooze, StepContext, task
from catbird_django.models import FlowRun, Item, RunLog, StepRun
from tests.support import until, work_off, working

MANY = int(os.environ.get("MAP_ITEMS", "2000"))  # 100000 for the long version

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120 + MANY // 50)]


@dataclass(frozen=True)
class Price:
    amount: int


def step_run(run_id: int, name: str) -> StepRun:
    return StepRun.objects.get(flow_run_id=run_id, step__name=name)


def items_of(run_id: int, name: str = "double") -> list[Item]:
    return list(Item.objects.filter(step_run=step_run(run_id, name)).order_by("index"))


def doubling(**options: Any) -> Flow[Any, Any]:
    """A flow over its input, whose items are doubled; a negative one fails."""
    flow = Flow("numbers", input=list[int])

    @flow.map(over="input", **options)
    def double(item: int) -> int:
        if item < 0:
            raise ValueError(f"{item} is negative")
        return item * 2

    return flow


def test_items_run_by_themselves_and_their_outputs_come_in_the_order_of_the_list() -> None:
    flow = Flow("numbers", input=list[int])
    together = threading.Barrier(3, timeout=10)

    @flow.map(over="input")
    def double(item: int) -> int:
        together.wait()
        return item * 2

    run = flow.run([3, 1, 2])
    work_off(concurrency=3)

    assert run.wait(timeout=5) == [6, 2, 4]
    assert [(item.index, item.status, item.output) for item in items_of(run.id)] == [
        (0, "completed", 6),
        (1, "completed", 2),
        (2, "completed", 4),
    ]
    assert step_run(run.id, "double").output is None


@pytest.mark.parametrize("count", [0, 1, 700])
def test_a_list_of_any_length_is_mapped_and_taken_as_a_whole(count: int) -> None:
    """F14a: more items than fit into one page."""
    flow = doubling()

    @flow.step
    def total(double: list[int]) -> list[int]:
        return [len(double), sum(double), int(double == sorted(double))]

    run = flow.run(list(range(count)))
    work_off()

    assert run.wait(timeout=5) == [count, count * (count - 1), 1]


def test_an_async_step_takes_a_whole_list_too() -> None:
    """F14a: the list is read from the database, which async code may not do on its loop."""
    flow = doubling()

    @flow.step
    async def total(double: list[int]) -> int:
        return sum(double)

    run = flow.run(list(range(300)))
    work_off()

    assert run.wait(timeout=5) == 89700


@pytest.mark.parametrize("value", [None, 3, "123", {"a": 1}])
def test_a_map_over_what_is_no_list_fails_at_once(value: Any) -> None:
    flow = Flow("numbers")

    @flow.step
    def make(input: Any) -> Any:
        return input

    @flow.map(over="make")
    def show(item: Any) -> Any:
        return item

    run = flow.run(value)
    work_off()

    with pytest.raises(FlowFailed, match="no list"):
        run.wait(timeout=5)
    assert step_run(run.id, "show").status == "failed"
    assert items_of(run.id, "show") == []


def test_a_long_map_waits_for_its_slow_last_item_and_no_longer() -> None:
    """F14: everything else is done meanwhile, and what comes after begins once, with all of it in order."""
    flow = Flow("long", input=list[int])
    may_end = threading.Event()

    @flow.map(over="input")
    def double(item: int) -> int:
        assert item < MANY - 1 or may_end.wait(MANY)
        return item * 2

    @flow.step
    def check(double: Iterable[int]) -> list[int]:
        pairs = [(place, output) for place, output in enumerate(double) if output != 2 * place]
        return [len(pairs), *map(sum, pairs[:3])]

    run = flow.run(list(range(MANY)))
    with working(concurrency=4):
        until(lambda: step_run(run.id, "double").items_completed == MANY - 1, seconds=60 + MANY / 100)
        assert step_run(run.id, "double").status == "waiting_for_items"
        assert step_run(run.id, "check").status == "waiting_for_dependencies"
        may_end.set()
        assert run.wait(timeout=30 + MANY / 1000) == [0]

    assert step_run(run.id, "check").delivery_count == 1
    assert Item.objects.filter(status="completed", delivery_count=1).count() == MANY


def test_lists_in_lists_and_empty_ones_are_items_like_others() -> None:
    flow = Flow("nested", input=list[list[int]])

    @flow.map(over="input")
    def lengths(item: list[int]) -> list[int]:
        return [len(item)] * len(item)

    @flow.map(over="lengths")
    def count(item: list[int]) -> int:
        return len(item)

    runs = [flow.run(value) for value in ([[1, 2], [], [3]], [[]], [])]
    work_off()

    assert [run.wait(timeout=5) for run in runs] == [[2, 0, 1], [0], []]


def test_null_is_an_item_too() -> None:
    flow = Flow("nothing", input=list[int | None])

    @flow.map(over="input")
    def same(item: int | None) -> int | None:
        return item

    run = flow.run([None, 1, None])
    work_off()

    assert run.wait(timeout=5) == [None, 1, None]


def test_values_reach_items_in_their_types_and_exactly() -> None:
    """F5: with what else the map takes, the same for each item."""
    flow = Flow("prices")

    @flow.step
    def prices(input: int) -> list[Price]:
        return [Price(number) for number in range(input)]

    @flow.step
    def rate() -> float:
        return 0.1

    @flow.map(over="prices")
    def taxed(item: Price, rate: float, input: int, ctx: StepContext) -> str:
        assert (ctx.flow, ctx.step) == ("prices", "taxed")
        return f"{ctx.index}/{input}: {item.amount * rate}"

    run = flow.run(4)
    work_off()

    assert run.wait(timeout=5) == ["0/4: 0.0", "1/4: 0.1", "2/4: 0.2", "3/4: 0.30000000000000004"]


@pytest.mark.parametrize("is_async", [False, True])
def test_the_context_of_an_item_knows_the_flow_run_the_place_and_the_attempt(is_async: bool) -> None:
    flow = Flow("numbers", input=list[int])
    seen: list[tuple[int, int | None, int]] = []

    def look(item: int, ctx: StepContext) -> int:
        seen.append((ctx.run_id, ctx.index, ctx.attempt))
        if item == ctx.attempt:
            raise ValueError("once more")
        return item

    async def look_async(item: int, ctx: StepContext) -> int:
        return look(item, ctx)

    flow.map(over="input", name="look", max_retries=1, backoff=(0, 0))(look_async if is_async else look)
    run = flow.run([5, 1])
    with working(concurrency=2):
        assert run.wait(timeout=10) == [5, 1]

    assert sorted(seen) == [(run.id, 0, 1), (run.id, 1, 1), (run.id, 1, 2)]
    assert [item.failure_count for item in items_of(run.id, "look")] == [0, 1]


def test_an_item_that_fails_for_good_fails_the_flow_and_nothing_more_is_begun() -> None:
    flow = doubling(max_retries=2, backoff=(0, 0))
    run = flow.run([-1, *range(50)])

    with working(), pytest.raises(FlowFailed, match="-1 is negative"):
        run.wait(timeout=10)
    failed = step_run(run.id, "double")
    assert (failed.status, failed.error["item"]) == ("failed", 0)
    assert items_of(run.id)[0].failure_count == 3
    assert not Item.objects.filter(status__in=["queued", "started", "canceling"]).exists()


def test_collected_errors_stand_in_the_place_of_their_items() -> None:
    flow = doubling(on_item_failure="collect")

    @flow.step
    def show(double: list[int | ItemError]) -> list[str]:
        return [str(item) for item in double]

    @flow.map(over="double")
    def again(item: int | ItemError) -> str:
        return item.message if isinstance(item, ItemError) else str(item)

    run = flow.run([1, -2, 3])
    work_off()
    run.wait(timeout=5)

    failed = "ItemError(index=1, type='ValueError', message='-2 is negative')"
    assert step_run(run.id, "show").output == ["2", failed, "6"]
    assert [item.output for item in items_of(run.id, "again")] == ["2", "-2 is negative", "6"]
    assert step_run(run.id, "double").items_failed == 1


def test_every_item_may_fail_where_errors_are_collected() -> None:
    flow = doubling(on_item_failure="collect")
    run = flow.run([-1, -2])
    work_off()

    assert [item.message for item in run.wait(timeout=5)] == ["-1 is negative", "-2 is negative"]


@pytest.mark.parametrize(("failing", "is_tolerated"), [(2, True), (3, False)])
def test_so_many_items_may_fail_and_no_more(failing: int, is_tolerated: bool) -> None:
    flow = doubling(tolerate=2)
    run = flow.run([*range(5), *[-1] * failing])
    work_off()

    if is_tolerated:
        assert len(run.wait(timeout=5)) == 7
    else:
        with pytest.raises(FlowFailed, match="negative"):
            run.wait(timeout=5)


def test_a_map_whose_items_fail_may_be_skipped_for_that() -> None:
    """F11a."""
    flow = doubling(on_exhausted="skip")

    @flow.step
    def total(double: Optional[list[int]]) -> str:
        return "skipped" if not double.is_set else str(sum(double.value))

    runs = [flow.run(value) for value in ([1, 2], [1, -2])]
    work_off()

    assert [run.wait(timeout=5) for run in runs] == ["6", "skipped"]


def test_a_map_over_a_step_that_was_skipped_is_skipped_and_its_list_is_missing() -> None:
    """F11."""
    flow = Flow("numbers", input=list[int])

    @flow.step(condition="input[0] gt 1")
    def some(input: list[int]) -> list[int]:
        return input

    @flow.map(over="some")
    def double(item: int) -> int:
        return item * 2

    @flow.step
    def total(double: Optional[list[int]]) -> int:
        return sum(double.value) if double.is_set else -1

    @flow.step
    def streamed(double: Optional[Iterable[int]]) -> int:
        return sum(double.value) if double.is_set else -1

    runs = [flow.run(value) for value in ([2, 3], [1, 3])]
    work_off()

    assert [run.wait(timeout=5) for run in runs] == [10, -1]
    assert [step_run(run.id, "streamed").output for run in runs] == [10, -1]


def test_streams_are_read_by_sync_and_async_steps() -> None:
    """F14a."""
    flow = doubling()

    @flow.step
    def total(double: Iterable[int]) -> int:
        return sum(double)

    @flow.step
    async def total_async(double: AsyncIterable[int]) -> int:
        sum_of_all = 0
        async for item in double:
            await asyncio.sleep(0)
            sum_of_all += item
        return sum_of_all

    @flow.step
    def both(total: int, total_async: int) -> list[int]:
        return [total, total_async]

    run = flow.run(list(range(300)))
    work_off()

    assert run.wait(timeout=5) == [89700, 89700]


def test_an_item_may_take_the_list_of_another_map() -> None:
    flow = doubling()

    @flow.step
    def two() -> list[int]:
        return [10, 20]

    @flow.map(over="two")
    def against(item: int, double: list[int]) -> int:
        return item + sum(double)

    run = flow.run([1, 2])
    work_off()

    assert run.wait(timeout=5) == [16, 26]


def test_items_say_how_far_they_are_and_keep_logs() -> None:
    """T10a."""
    flow = Flow("numbers", input=list[int])

    @flow.map(over="input")
    def double(item: int, ctx: StepContext) -> int:
        ctx.progress(1, 2, f"half of {item}")
        ctx.log(f"item {ctx.index}")
        return item

    run = flow.run([7, 8])
    work_off()
    run.wait(timeout=5)

    items = items_of(run.id)
    assert [item.progress["message"] for item in items] == ["half of 7", "half of 8"]
    lines = RunLog.objects.filter(run_kind="item", run_id__in=[item.id for item in items]).order_by("run_id")
    assert [line.message for line in lines] == ["item 0", "item 1"]


def test_an_item_that_asks_for_it_cancels_the_run() -> None:
    """F17."""
    flow = Flow("numbers", input=list[int])

    @flow.map(over="input")
    def double(item: int) -> int:
        raise Cancel("enough")

    run = flow.run([1])
    work_off()

    with pytest.raises(RunCanceled):
        run.wait(timeout=5)
    assert FlowRun.objects.get(id=run.id).cancel_reason == "enough"


def test_running_items_of_a_canceled_run_are_told() -> None:
    """F17."""
    flow = Flow("numbers", input=list[int])
    began, told = threading.Event(), threading.Event()

    @flow.map(over="input")
    def wait_for_it(item: int, ctx: StepContext) -> int:
        began.set()
        until(lambda: ctx.is_canceled)
        told.set()
        ctx.stop_if_canceled()
        return item

    with working(concurrency=2):
        run = flow.run([1, 2])
        assert began.wait(10)
        run.cancel()
        assert told.wait(10)
        until(lambda: run.status() == "canceled")

    assert {item.status for item in items_of(run.id, "wait_for_it")} == {"canceled"}


def test_an_item_that_is_not_ready_is_given_back_without_charge() -> None:
    flow = Flow("numbers", input=list[int])
    tries: list[int] = []

    @flow.map(over="input")
    def double(item: int) -> int:
        tries.append(item)
        if len(tries) == 1:
            raise Snooze(0.01)
        return item

    run = flow.run([4])
    with working():
        assert run.wait(timeout=10) == [4]

    [item] = items_of(run.id)
    assert (item.delivery_count, item.failure_count) == (2, 0)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_item_that_takes_too_long_fails(is_async: bool) -> None:
    """T8."""
    flow = Flow("numbers", input=list[int])

    def never_ends(item: int) -> int:
        threading.Event().wait(0.05)
        while item:
            threading.Event().wait(0.01)
        return item

    async def never_ends_async(item: int) -> int:
        await asyncio.sleep(60 if item else 0)
        return item

    handler = never_ends_async if is_async else never_ends
    flow.map(over="input", name="slow", timeout=0.2, on_item_failure="collect")(handler)
    run = flow.run([1, 0])
    work_off()

    slow, quick = run.wait(timeout=5)
    assert (slow.type, quick) == ("HandlerTimeout", 0)


def test_an_item_cannot_skip_itself_and_its_output_must_fit() -> None:
    flow = Flow("numbers", input=list[int])

    @flow.map(over="input", on_item_failure="collect")
    def bad(item: int) -> int:
        if item:
            raise Skip("no")
        return "four"  # type: ignore[return-value] # as tests want it

    run = flow.run([0, 1])
    work_off()

    assert [item.type for item in run.wait(timeout=5)] == ["PayloadError", "DefinitionError"]


def test_items_and_tasks_are_worked_off_side_by_side() -> None:
    """W6: one look at the lanes for all kinds."""
    flow = doubling()
    seen: list[int] = []

    @task
    def note(input: int) -> None:
        seen.append(input)

    runs = [flow.run(list(range(20))) for _ in range(3)]
    for number in range(20):
        note.run(number)
    work_off()

    assert [run.wait(timeout=5) for run in runs] == [[number * 2 for number in range(20)]] * 3
    assert sorted(seen) == list(range(20))


def test_no_more_items_run_at_once_than_the_map_allows() -> None:
    flow = Flow("numbers", input=list[int])
    busy, most, lock = 0, 0, threading.Lock()

    @flow.map(over="input", concurrency=2)
    def double(item: int) -> int:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        threading.Event().wait(0.01)
        with lock:
            busy -= 1
        return item

    run = flow.run(list(range(12)))
    work_off(concurrency=6)

    assert (run.wait(timeout=5), most) == (list(range(12)), 2)


def test_an_async_map_may_use_the_database_through_threads() -> None:
    flow = Flow("numbers", input=list[int])

    @flow.map(over="input")
    async def count(item: int, ctx: StepContext) -> int:
        return await sync_to_async(Item.objects.filter(flow_run_id=ctx.run_id).count)()

    run = flow.run([1, 2, 3])
    work_off()

    assert run.wait(timeout=5) == [3, 3, 3]
