"""Reduces: one item after the other, in order, with what was returned for the one before (F15)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from catbird_django import Flow, ItemError
from catbird_django.client.context import NobodyListens
from catbird_django.client.interrupts import CancelRequested
from catbird_django.definitions.registry import registry
from catbird_django.errors import PayloadError
from tests.unit.worker.claims import MAP_RUN, StoredItems, call, handler_of, step_claim

LISTS = f'{{"double": {MAP_RUN}}}'


@dataclass
class Total:
    sum: int
    seen: list[int]


@pytest.fixture(autouse=True)
def _only_these() -> Any:
    with registry.isolated():
        registry.flows.clear()
        yield


def flow_with_map(**options: Any) -> Flow[Any, Any]:
    flow = Flow("numbers")

    @flow.map(over="input", **options)
    def double(item: int) -> int: ...

    return flow


def test_items_of_a_map_are_reduced_in_order_page_by_page() -> None:
    flow = flow_with_map()

    @flow.reduce(over="double", initial="")
    def joined(acc: str, item: int) -> str:
        return f"{acc}{item},"

    items = StoredItems(range(60))

    assert call(handler_of(flow, "joined", items), step_claim(lists=LISTS)) == "".join(f"{n}," for n in range(60))
    assert len(items.limits) > 1


def test_an_async_reduce_awaits_each_item() -> None:
    flow = flow_with_map()

    @flow.reduce(over="double", initial=0)
    async def total(acc: int, item: int) -> int:
        await asyncio.sleep(0)
        return acc * 2 + item

    @flow.reduce(over="input", initial=0)
    async def whole(acc: int, item: int) -> int:
        return acc * 2 + item

    async def both() -> None:
        assert await call(handler_of(flow, "total", StoredItems([1, 0, 1])), step_claim(lists=LISTS)) == 5
        assert await call(handler_of(flow, "whole"), step_claim(input="[1, 0, 1]")) == 5

    asyncio.run(both())


def test_lists_of_plain_steps_and_the_input_are_reduced_element_by_element_exactly() -> None:
    flow = Flow("numbers")

    @flow.step
    def prices() -> list[Decimal]: ...

    @flow.reduce(over="prices", initial=Decimal(0))
    def total(acc: Decimal, item: Decimal, input: list[str]) -> Decimal:
        return acc + item + len(input)

    @flow.reduce(over="input", initial="")
    def words(acc: str, item: str) -> str:
        return acc + item

    claim = step_claim(outputs='{"prices": ["1.10", "0.00000000000000000001"]}', input='[ "], [\\"" ,"b"]')

    assert call(handler_of(flow, "total"), claim) == Decimal("5.10000000000000000001")
    assert call(handler_of(flow, "words"), claim) == '], ["b'


@pytest.mark.parametrize("text", ["null", "3", '"[1]"', '{"a": [1]}'])
def test_what_is_no_list_is_refused(text: str) -> None:
    flow = Flow("numbers")

    @flow.reduce(over="input", initial=0)
    def total(acc: int, item: int) -> int: ...

    with pytest.raises(PayloadError, match="input: expected a list"):
        call(handler_of(flow, "total"), step_claim(input=text))


def test_each_run_starts_with_a_value_of_its_own_and_returns_it_when_there_are_no_items() -> None:
    flow = flow_with_map()

    @flow.reduce(over="double", initial=Total(0, []))
    def total(acc: Total, item: int) -> Total:
        acc.seen.append(item)
        acc.sum += item
        return acc

    for _ in range(2):
        handler = handler_of(flow, "total", StoredItems([1, 2]))
        assert call(handler, step_claim(lists=LISTS)) == Total(3, [1, 2])
    assert call(handler_of(flow, "total", StoredItems([])), step_claim(lists=LISTS)) == Total(0, [])


def test_what_starts_as_whole_number_is_one_again_when_there_are_no_items() -> None:
    """Its type is that of the output, also where `acc` takes more."""
    flow = flow_with_map()

    @flow.reduce(over="double", initial=0)
    def total(acc: float, item: int) -> int: ...

    handler = handler_of(flow, "total", StoredItems([]))
    result = call(handler, step_claim(lists=LISTS))

    assert handler.output_codec.encode(result, name="output", max_bytes=100) == "0"


def test_failed_items_come_as_their_errors() -> None:
    flow = flow_with_map(on_item_failure="collect")

    @flow.reduce(over="double", initial=0)
    def failures(acc: int, item: int | ItemError) -> int:
        return acc + isinstance(item, ItemError)

    handler = handler_of(flow, "failures", StoredItems([1, 2, 3], errors={0: "no", 2: "no"}))

    assert call(handler, step_claim(lists=LISTS)) == 2


def test_the_element_that_does_not_fit_is_named() -> None:
    flow = flow_with_map()

    @flow.reduce(over="double", initial=0)
    def total(acc: int, item: int) -> int:
        return acc + item

    with pytest.raises(PayloadError, match=r"item\[1\]"):
        call(handler_of(flow, "total", StoredItems([1, "two"])), step_claim(lists=LISTS))


class CanceledAfter(NobodyListens):
    """A reporter of a run that is canceled when it has been asked so many times."""

    def __init__(self, count: int) -> None:
        self._count = count

    def is_canceled(self) -> bool:
        self._count -= 1
        return self._count < 0


def test_a_reduce_whose_run_is_canceled_stops_before_the_next_item() -> None:
    """F17."""
    flow, seen = flow_with_map(), []

    @flow.reduce(over="double", initial=0)
    def total(acc: int, item: int) -> int:
        seen.append(item)
        return acc

    handler = handler_of(flow, "total", StoredItems(range(10)))
    reporter_for: Callable[[Any], CanceledAfter] = lambda _: CanceledAfter(3)  # noqa: E731 - one line says it
    given = handler.arguments(step_claim(lists=LISTS), reporter_for)

    with pytest.raises(CancelRequested):
        handler.function(*given)
    assert seen == [0, 1, 2]
