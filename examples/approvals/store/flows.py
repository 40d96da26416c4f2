from dataclasses import dataclass

from catbird_django import Flow, Optional  # ours: has .is_set and .value


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
