"""The flows, with no-op handlers that run on threads, and some of them on the loop; everything else as by default."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.engines.probe import hit
from catbird_django import Flow

UNNUMBERED = -1

linear = Flow("linear")


@linear.step
def first(input: int) -> int:
    hit(UNNUMBERED)
    return input


@linear.step
def second(first: int) -> int:
    hit(UNNUMBERED)
    return first


@linear.step
def third(second: int) -> int:
    hit(UNNUMBERED)
    return second


diamond = Flow("diamond")


@diamond.step
def top(input: int) -> int:
    hit(UNNUMBERED)
    return input


@diamond.step
def left(top: int) -> int:
    hit(UNNUMBERED)
    return top


@diamond.step
def right(top: int) -> int:
    hit(UNNUMBERED)
    return top


@diamond.step
def bottom(left: int, right: int) -> int:
    hit(UNNUMBERED)
    return left + right


async_linear = Flow("async_linear")


@async_linear.step(name="first")
async def async_first(input: int) -> int:
    hit(UNNUMBERED)
    return input


@async_linear.step(name="second")
async def async_second(first: int) -> int:
    hit(UNNUMBERED)
    return first


@async_linear.step(name="third")
async def async_third(second: int) -> int:
    hit(UNNUMBERED)
    return second


async_diamond = Flow("async_diamond")


@async_diamond.step(name="top")
async def async_top(input: int) -> int:
    hit(UNNUMBERED)
    return input


@async_diamond.step(name="left")
async def async_left(top: int) -> int:
    hit(UNNUMBERED)
    return top


@async_diamond.step(name="right")
async def async_right(top: int) -> int:
    hit(UNNUMBERED)
    return top


@async_diamond.step(name="bottom")
async def async_bottom(left: int, right: int) -> int:
    hit(UNNUMBERED)
    return left + right


# Whoever comes last takes the whole list.
fanout = Flow("fanout")


@fanout.step(name="numbers")
def fanout_numbers(input: int) -> list[int]:
    hit(UNNUMBERED)
    return list(range(input))


@fanout.map(over="numbers", name="each")
def fanout_each(item: int) -> int:
    hit(UNNUMBERED)
    return item


@fanout.step(name="total")
def fanout_total(each: list[int]) -> int:
    hit(UNNUMBERED)
    return len(each)


async_fanout = Flow("async_fanout")


@async_fanout.step(name="numbers")
async def async_fanout_numbers(input: int) -> list[int]:
    hit(UNNUMBERED)
    return list(range(input))


@async_fanout.map(over="numbers", name="each")
async def async_fanout_each(item: int) -> int:
    hit(UNNUMBERED)
    return item


@async_fanout.step(name="total")
async def async_fanout_total(each: list[int]) -> int:
    hit(UNNUMBERED)
    return len(each)


# As above, and the last reads the list bit by bit: for maps that do not fit into memory.
streamed = Flow("map")


@streamed.step(name="numbers")
def streamed_numbers(input: int) -> list[int]:
    hit(UNNUMBERED)
    return list(range(input))


@streamed.map(over="numbers", name="each")
def streamed_each(item: int) -> int:
    hit(UNNUMBERED)
    return item


@streamed.step(name="total")
def streamed_total(each: Iterable[int]) -> int:
    hit(UNNUMBERED)
    return sum(1 for _ in each)


# As above, with a reduce at the end. Its function is called for every item, inside of one step, and counts nothing.
reduced = Flow("reduced")


@reduced.step(name="numbers")
def reduced_numbers(input: int) -> list[int]:
    hit(UNNUMBERED)
    return list(range(input))


@reduced.map(over="numbers", name="each")
def reduced_each(item: int) -> int:
    hit(UNNUMBERED)
    return item


@reduced.reduce(over="each", initial=0, name="total")
def reduced_total(acc: int, item: int) -> int:
    del item
    return acc + 1
