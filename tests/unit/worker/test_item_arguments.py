"""What items of maps are called with, and those who take the outputs of a map (F11, F14, F14a)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from django.db import OperationalError

from catbird_django import Flow, ItemError, Optional, StepContext
from catbird_django.definitions.registry import registry
from catbird_django.errors import PayloadError
from catbird_django.worker.item_lists import LARGEST_PAGE, MOST_CHARACTERS, Unread
from tests.unit.worker.claims import MAP_RUN, StoredItems, arguments, handler_of, item_claim, step_claim

LISTS = f'{{"double": {MAP_RUN}}}'


@dataclass(frozen=True)
class Price:
    amount: int


@pytest.fixture(autouse=True)
def _only_these() -> Any:
    with registry.isolated():
        registry.flows.clear()
        yield


def doubling(*, over_prices: bool = False, **options: Any) -> Flow[Any, Any]:
    """A flow whose map `double` gives ints, or prices."""
    flow = Flow("numbers")
    if over_prices:

        @flow.map(over="input", name="double", **options)
        def double_prices(item: Price) -> Price: ...
    else:

        @flow.map(over="input", **options)
        def double(item: int) -> int: ...

    return flow


def taken(flow: Flow[Any, Any], step: str, items: StoredItems) -> Any:
    """What a step is given for its parameter `double`."""
    return arguments(handler_of(flow, step, items), step_claim(lists=LISTS))["double"]


def test_an_item_is_called_with_its_element_and_its_place_and_what_else_it_takes() -> None:
    flow = Flow("numbers")

    @flow.step
    def rate() -> int: ...

    @flow.map(over="input")
    def double(item: Price, rate: int, input: list[Price], ctx: StepContext) -> int: ...

    claim = item_claim('{"amount": 4}', index=2, outputs='{"rate": 3}', input='[{"amount": 4}]')
    given = arguments(handler_of(flow, "double"), claim)
    ctx = given.pop("ctx")

    assert given == {"item": Price(4), "rate": 3, "input": [Price(4)]}
    assert (ctx.run_id, ctx.step, ctx.index) == (5, "double", 2)


def test_a_step_that_is_no_map_has_no_index() -> None:
    flow = Flow("numbers")

    @flow.step
    def only(ctx: StepContext) -> int: ...

    assert arguments(handler_of(flow, "only"), step_claim())["ctx"].index is None


def test_an_item_that_failed_in_the_map_before_comes_as_its_error() -> None:
    flow = doubling(on_item_failure="collect")

    @flow.map(over="double")
    def show(item: int | ItemError) -> str: ...

    handler = handler_of(flow, "show")
    failed = item_claim('{"index": 1, "type": "ValueError", "message": "no"}', is_error=True)

    assert arguments(handler, failed) == {"item": ItemError(1, "ValueError", "no")}
    assert arguments(handler, item_claim("4")) == {"item": 4}


def test_an_item_that_does_not_fit_is_named() -> None:
    with pytest.raises(PayloadError, match="item"):
        arguments(handler_of(doubling(), "double"), item_claim('"four"'))


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (list[int], [1, 2]),
        (Sequence[int], [1, 2]),
        (tuple[int, ...], (1, 2)),
        (tuple[int, int], (1, 2)),
        (frozenset[int], frozenset({1, 2})),
        (list[int] | None, [1, 2]),
        (Annotated[list[int], "as it stands"], [1, 2]),
        (Optional[list[int]], Optional([1, 2])),
        (list, [1, 2]),
        (Any, [1, 2]),
    ],
)
def test_a_whole_list_has_the_type_that_was_asked_for(annotation: Any, expected: Any) -> None:
    flow = doubling()

    def total(double: Any) -> int: ...

    total.__annotations__["double"] = annotation
    flow.step(total)

    assert taken(flow, "total", StoredItems([1, 2])) == expected
    assert type(taken(flow, "total", StoredItems([1, 2]))) is type(expected)


def test_elements_of_a_list_are_of_the_declared_type_and_failed_ones_are_errors() -> None:
    flow = doubling(over_prices=True, tolerate=3)

    @flow.step
    def total(double: list[Price | ItemError]) -> int: ...

    items = StoredItems([{"amount": 1}, None, {"amount": 3}], errors={1: "no"})
    assert taken(flow, "total", items) == [Price(1), ItemError(1, "ValueError", "no"), Price(3)]


def test_the_element_of_a_list_that_does_not_fit_is_named() -> None:
    flow = doubling()

    @flow.step
    def total(double: list[int]) -> int: ...

    with pytest.raises(PayloadError, match=r"double\[1\]"):
        taken(flow, "total", StoredItems([1, "two"]))


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [(list[int] | None, None), (Optional[list[int]], Optional()), (Optional[Iterable[int]], Optional())],
)
def test_the_list_of_a_map_that_was_skipped_is_missing(annotation: Any, expected: Any) -> None:
    """F11."""
    flow = doubling()

    def total(double: Any) -> int: ...

    total.__annotations__["double"] = annotation
    flow.step(total)

    assert arguments(handler_of(flow, "total"), step_claim(lists="{}")) == {"double": expected}


def test_a_stream_reads_as_it_is_gone_over_and_anew_by_each_loop() -> None:
    flow = doubling()

    @flow.step
    def total(double: Iterable[int]) -> int: ...

    items = StoredItems(range(100))
    stream = taken(flow, "total", items)
    assert items.limits == []
    assert next(iter(stream)) == 0
    assert len(items.limits) == 1
    assert list(stream) == list(stream) == list(range(100))


def test_an_iterator_is_gone_over_once() -> None:
    flow = doubling()

    @flow.step
    def total(double: Iterator[int]) -> int: ...

    stream = taken(flow, "total", StoredItems([1, 2, 3]))

    assert (next(stream), list(stream), list(stream)) == (1, [2, 3], [])


def test_an_async_step_reads_its_stream_asynchronously() -> None:
    flow = doubling()

    @flow.step
    async def total(double: AsyncIterable[int]) -> int: ...

    @flow.step
    async def first(double: AsyncIterator[int]) -> int: ...

    async def read() -> None:
        stream = taken(flow, "total", StoredItems(range(100)))
        assert [item async for item in stream] == [item async for item in stream] == list(range(100))
        assert await anext(taken(flow, "first", StoredItems([7]))) == 7

    asyncio.run(read())


def test_pages_grow_while_items_are_small_and_shrink_when_they_are_not() -> None:
    """Bounded memory (F14a)."""
    flow = doubling()

    @flow.step
    def total(double: Iterable[Any]) -> int: ...

    small = StoredItems(range(3 * LARGEST_PAGE))
    assert len(list(taken(flow, "total", small))) == 3 * LARGEST_PAGE
    assert max(small.limits) == LARGEST_PAGE

    big = StoredItems(["x" * (MOST_CHARACTERS // 3)] * 30)
    assert len(list(taken(flow, "total", big))) == 30
    assert set(big.limits[1:]) == {2}


def test_outputs_that_cannot_be_read_are_not_taken_for_what_the_handler_did() -> None:
    flow = doubling()

    @flow.step
    def total(double: list[int]) -> int: ...

    items = StoredItems([1])
    items.is_gone = OperationalError("the server is gone")

    with pytest.raises(Unread, match="the server is gone"):
        taken(flow, "total", items)
