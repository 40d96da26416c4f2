"""X6: what mypy knows of a flow: the example of the specification, parameters and outputs of steps, and what is wrong.

A `type: ignore` below is a test too: mypy complains about one that is not needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Never, assert_type

from catbird_django import Flow, FlowHandle, ItemError, Optional, Signal, Step, complete_early


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


orders = Flow("order")


@orders.step
def validate(input: Order) -> Check:
    return Check(total=input.total)


@orders.step(condition="validate.total gt 1000", signal=Approval)
def approve(validate: Check, signal: Approval) -> bool:
    return signal.ok


@orders.step(condition="not approve exists or approve")
def ship(input: Order, approve: Optional[bool]) -> str:
    return f"shipped {input.id}" if approve.is_set else f"shipped {input.id} without asking"


@orders.step(condition="approve exists and not approve")
def refund(input: Order, approve: Optional[bool]) -> str:
    return f"refunded {input.id}"


typed: Flow[Order, int] = Flow("typed", output="count", output_required=True, deadline=60)
stated = Flow("stated", input=Order)


@typed.step(name="count", after=[validate], signal=Signal(Approval, quorum=2), max_retries=3)
async def count_lines(signal: list[Approval], approve: bool | None) -> int:
    return len(signal) + bool(approve)


sums = Flow("sums")


@sums.map(over="input", tolerate=3, max_retries=2, atomic=True)
def double(item: int, ctx: Any) -> int:
    return 2 * item


@sums.map(over=double, on_item_failure="collect", name="halved")
async def halve(item: int | ItemError) -> float:
    return complete_early(None, "failed") if isinstance(item, ItemError) else item / 2


@sums.reduce(over="double", initial=0, timeout=60)
def total(acc: int, item: int | ItemError) -> int:
    return acc if isinstance(item, ItemError) else acc + item


@sums.step(inline=True)
def shown(total: int) -> str:
    return str(total)


@sums.step(after=[total])
async def report(halved: AsyncIterable[float | ItemError]) -> list[str]:
    return [one.message async for one in halved if isinstance(one, ItemError)]


@sums.step(depends_on=[halve])
def count(numbers: Iterable[float | ItemError]) -> int:
    return sum(1 for _ in numbers)


async def check_what_mypy_knows_of_maps_and_reduces() -> None:
    assert_type(double(3, None), int)
    assert_type(await halve(3), float)
    assert_type(total(acc=1, item=2), int)
    assert_type(shown(3), str)
    as_step: Step[[int, int | ItemError], int] = total
    as_function: Callable[[int, Any], int] = double
    assert as_step is not as_function
    if as_step.name == "never":
        assert_type(complete_early(3), Never)


async def check_what_mypy_knows() -> None:
    assert_type(orders, Flow[Any, Any])
    assert_type(typed, Flow[Order, int])
    assert_type(stated, Flow[Order, Any])
    assert_type(validate(Order(1, 2.0)), Check)
    assert_type(ship(Order(1, 2.0), Optional(True)), str)
    assert_type(refund(input=Order(1, 2.0), approve=Optional()), str)
    assert_type(Optional(3).value, int)
    assert_type(await count_lines([], None), int)
    assert_type(typed.run(Order(1, 2.0)), FlowHandle[int])
    assert_type(typed.run({"id": 1}, actor="kim").wait(), int)
    assert_type(await typed.arun_many([Order(1, 2.0)]), list[FlowHandle[int]])
    assert_type(await orders.run(3), Any)
    as_function: Callable[[Check, Approval], bool] = approve
    as_step: Step[..., bool] = approve
    assert as_function is as_step


def check_what_mypy_refuses() -> None:
    validate(3)  # type: ignore[arg-type]
    ship(Order(1, 2.0))  # type: ignore[call-arg]
    ship(Order(1, 2.0), True)  # type: ignore[arg-type]
    orders.step(retries=3)  # type: ignore[call-overload]
    orders.step(on_unmet="ignore")  # type: ignore[call-overload]
    Flow("flow", queues="mail")  # type: ignore[call-overload]
    typed.run(3)  # type: ignore[arg-type]
    orders.run(1, debounce_key="x")  # type: ignore[call-arg]
    Signal(Approval, quorum="2")  # type: ignore[arg-type]
    double("3", None)  # type: ignore[arg-type]
    sums.map(tolerate=3)  # type: ignore[call-arg]
    sums.map(over="input", on_item_failure="skip")  # type: ignore[arg-type]
    sums.map(over="input", may_skip=True)  # type: ignore[call-arg]
    sums.map(over=3)  # type: ignore[arg-type]
    sums.reduce(over="input")  # type: ignore[call-arg]
    sums.reduce(over="input", initial=0, atomic=True)  # type: ignore[call-arg]
