"""X6: what mypy knows of a flow: the example of the specification, parameters and outputs of steps, and what is wrong.

A `type: ignore` below is a test too: mypy complains about one that is not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_type

from catbird_django import Flow, FlowHandle, Optional, Signal, Step


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
