"""Flows in tests: the example of the specification, and steps run one by one on the test's own thread."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from catbird_django import Flow, Optional
from catbird_django.definitions.registry import registry
from catbird_django.engine import steps
from catbird_django.models import Step
from catbird_django.statuses import SettleVerdict
from tests.flow_support import claim_all
from tests.support import USING


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


def declare_orders(name: str = "order", **options: Any) -> Flow[Order, str]:
    """Declare the flow of SPEC section 4, for this test."""
    orders: Flow[Order, str] = Flow(name, **options)

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

    return orders


def run_steps() -> list[str]:
    """Run whatever is due, and what becomes due by it, until nothing is left; return the names of what ran."""
    ran: list[str] = []
    while claims := claim_all(100):
        for claim in claims:
            ran.append(_run(claim))
    return ran


def _run(claim: steps.StepClaim) -> str:
    stored = Step.objects.select_related("flow").get(pk=-claim.handler_id)
    definition = registry.flow(stored.flow.name).definition.steps[stored.name]
    values: dict[str, Any] = {name: json.dumps(value) for name, value in json.loads(claim.outputs or "{}").items()} | {
        "input": claim.input,
        "signal": claim.signal,
    }
    arguments = {
        one.parameter.name: one.value_of(values.get(one.parameter.step or one.parameter.source.value))
        for one in definition.arguments
    }
    try:
        output = definition.output_codec.encode(definition.handler(**arguments), name="output", max_bytes=10_000)
    except Exception as error:  # noqa: BLE001 - as a worker does
        failure = json.dumps({"type": type(error).__name__, "message": str(error), "traceback": ""})
        steps.fail_steps([(claim.delivery, failure, None)], notify=True, using=USING)
    else:
        verdicts = steps.complete_steps([(claim.delivery, output)], notify=True, using=USING)
        assert set(verdicts) <= {SettleVerdict.COMPLETED, SettleVerdict.CANCELED, SettleVerdict.STALE}
    return stored.name
