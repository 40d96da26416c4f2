"""Reduces: a function called with one item after the other, and with what it returned for the one before (F15).

Of the items only those are in memory that are read together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

from catbird_django.client.interrupts import CancelRequested
from catbird_django.codec import codec_for
from catbird_django.definitions.flow import FlowDefinition
from catbird_django.definitions.parameters import INPUT, Source
from catbird_django.definitions.step import StepDefinition
from catbird_django.definitions.step_kinds import StepKind
from catbird_django.engine.items import ItemOutput
from catbird_django.worker.item_lists import AsyncItemStream, ItemStream, Pages, decode_items
from catbird_django.worker.step_arguments import Given, elements_of

Items = ItemStream | AsyncItemStream
IsCanceled = Callable[[], bool]


def items_of(step: StepDefinition, flow: FlowDefinition) -> Callable[[Given], Items]:
    """How a reduce comes by what it goes over: the outputs of a map, or a list that the claim brings."""
    argument = step.argument_from(Source.ITEM)
    decode = decode_items(Any if argument is None else argument.value_type, name="item")
    if step.over == INPUT or flow.steps[step.over].kind is not StepKind.MAP:
        return lambda given: ItemStream(lambda: _elements(step.over, given), decode)
    stream = AsyncItemStream if step.is_async else ItemStream
    return lambda given: stream(partial(Pages, given.read_items, given.lists[step.over]), decode)


def _elements(over: str, given: Given) -> Iterator[ItemOutput]:
    text = given.claim.input if over == INPUT else given.outputs.get(over)
    if text is None:
        raise LookupError(f"there is no output of {over!r} to go over")
    for index, element in enumerate(elements_of(text, name=over)):
        yield ItemOutput(index, element, is_error=False)


def reduce_function(step: StepDefinition) -> Callable[..., Any]:
    """The function that reduces all items, given the arguments that are the same for each of them."""
    function, initial, begin = step.handler, step.initial, _beginning(step)

    def reduce_all(others: dict[str, Any], items: ItemStream, is_canceled: IsCanceled) -> Any:
        result, acc = initial, begin()
        for item in items:
            _stop_if(is_canceled)
            result = acc = function(acc=acc, item=item, **others)
        return result

    async def reduce_all_async(others: dict[str, Any], items: Items, is_canceled: IsCanceled) -> Any:
        result, acc = initial, begin()
        async for item in _one_by_one(items):
            _stop_if(is_canceled)
            result = acc = await function(acc=acc, item=item, **others)
        return result

    return reduce_all_async if step.is_async else reduce_all


def _beginning(step: StepDefinition) -> Callable[[], Any]:
    """What makes the value that the first call is given: its own, whatever others do to theirs."""
    argument = step.argument_from(Source.ACC)
    decode = codec_for(Any if argument is None else argument.value_type).decode
    return lambda: decode(step.initial_text, name="initial")


def _stop_if(is_canceled: IsCanceled) -> None:
    if is_canceled():
        raise CancelRequested


async def _one_by_one(items: Items) -> AsyncIterator[Any]:
    if isinstance(items, ItemStream):
        for item in items:
            yield item
    else:
        async for item in items:
            yield item
