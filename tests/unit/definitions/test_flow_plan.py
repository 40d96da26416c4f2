"""F21: what the database is told of a flow, and when that is another version."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any

import pytest

from catbird_django.client.flows import Flow, Optional, Signal
from catbird_django.definitions.registry import registry


@dataclass
class Order:
    total: float


@dataclass
class Rush(Order):
    hours: int


@dataclass
class Approval:
    ok: bool


@pytest.fixture
def example() -> Any:
    """The flow of the specification, as mypy reads it."""
    sys.modules.pop("tests.typing.flows", None)
    return importlib.import_module("tests.typing.flows").orders.definition


def test_the_plan_of_the_example(example: Any) -> None:
    """SPEC 4, F3, F3a, F8, F10a, F11."""
    plan = example.plan.as_json()

    assert (plan["name"], plan["queue"], plan["outputs"], plan["final_count"]) == (
        "order",
        "default",
        ["ship", "refund"],
        2,
    )
    validate, approve, ship, refund = plan["steps"]
    assert [(one["position"], one["name"], one["kind"]) for one in plan["steps"]] == [
        (1, "validate", "step"),
        (2, "approve", "step"),
        (3, "ship", "step"),
        (4, "refund", "step"),
    ]
    assert [one["required_count"] for one in plan["steps"]] == [0, 2, 1, 1]
    assert [one["is_final"] for one in plan["steps"]] == [False, False, True, True]
    assert approve["dependencies"] == [
        {
            "step": "validate",
            "step_position": 1,
            "parameter": "validate",
            "argument_position": 1,
            "is_optional": False,
            "is_order_only": False,
        }
    ]
    assert approve["condition"]["tree"] == {
        "op": "gt",
        "field": "validate.total",
        "path": ["validate", "total"],
        "value": 1000,
    }
    assert (approve["condition_needs_signal"], approve["takes_signal"], approve["takes_input"]) == (False, True, False)
    assert (ship["dependencies"][0]["is_optional"], ship["dependencies"][0]["argument_position"]) == (True, 2)
    assert ship["argument_schemas"]["approve"] == {"type": "boolean"}
    assert ship["handler"] == "tests.typing.flows:ship"
    assert refund["output_schema"] == {"type": "string"}
    assert validate["signal"] is validate["signal_schema"] is validate["condition"] is None


def test_the_maps_and_reduces_that_mypy_reads_can_work() -> None:
    """F14, F15: what the type checker accepts, the check of the flow does too."""
    sys.modules.pop("tests.typing.flows", None)
    sums = importlib.import_module("tests.typing.flows").sums.definition

    assert [(step.name, step.kind, step.over) for step in sums.plan.steps] == [
        ("double", "map", "input"),
        ("halved", "map", "double"),
        ("total", "reduce", "double"),
        ("shown", "step", ""),
        ("report", "step", ""),
        ("count", "step", ""),
    ]


def test_the_plan_is_plain_json(example: Any) -> None:
    plan = example.plan.as_json()

    assert json.loads(json.dumps(plan)) == plan


FINGERPRINT = """
import importlib
print(importlib.import_module("tests.typing.flows").orders.definition.fingerprint)
"""


def test_another_process_finds_the_same_fingerprint(example: Any) -> None:
    """F21: nothing in it depends on the order of sets, or on the process."""
    found = {
        subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout.strip()
        for seed in ("1", "2")
    }

    assert found == {example.fingerprint}


class Speed(Enum):
    FAST = "fast"

    @property
    def label(self) -> str:
        return LANGUAGE[-1]


LANGUAGE = ["Fast"]


def test_the_language_that_happens_to_be_active_is_no_part_of_the_shape() -> None:
    """F21: choices may have labels that are translated."""

    def declared() -> Any:
        flow = Flow("order")

        @flow.step
        def ship(input: Speed) -> Speed: ...

        return flow.definition.plan

    in_english = declared()
    LANGUAGE.append("Schnell")
    in_german = declared()

    assert in_english != in_german
    assert in_english.fingerprint() == in_german.fingerprint()


def ship_one(input: Order, validate: float | None, ctx: Any) -> str:
    """Ship it."""
    return "one"


def ship_other(input: Order, validate: float | None, ctx: Any) -> str:
    """Ship it."""
    return "the body is not the shape"


ship_other.__qualname__ = ship_one.__qualname__


def fingerprint(handler: Any = ship_one, flow: dict[str, Any] | None = None, **options: Any) -> str:
    declared = Flow("order", **(flow or {}))

    @declared.step(may_skip=True)
    def validate(input: Order) -> float: ...

    @declared.step
    def audit(input: Order) -> None: ...

    declared.step(name="ship", **options)(handler)
    return declared.definition.fingerprint


def test_the_same_shape_has_the_same_fingerprint_whatever_the_code() -> None:
    """F21: shape, not code."""
    assert fingerprint(ship_one) == fingerprint(ship_one) == fingerprint(ship_other)


def test_what_only_a_worker_decides_is_no_part_of_the_shape() -> None:
    """The backoff and the exceptions worth a retry live in code, as for tasks."""
    assert fingerprint(backoff=(1, 2), retry_on=ValueError, no_retry_on=KeyError) == fingerprint()


def described(input: Order, validate: float | None, ctx: Any) -> str:
    """Ship it now."""
    return ""


def another_output(input: Order, validate: float | None, ctx: Any) -> int:
    """Ship it."""
    return 0


def without_context(input: Order, validate: float | None) -> str:
    """Ship it."""
    return ""


def without_input(validate: float | None, ctx: Any) -> str:
    """Ship it."""
    return ""


def our_optional(input: Order, validate: Optional[float], ctx: Any) -> str:
    """Ship it."""
    return ""


for other in (described, another_output, without_context, without_input, our_optional):
    other.__qualname__ = ship_one.__qualname__

MEANINGFUL: list[dict[str, Any]] = [
    {"handler": described},
    {"handler": another_output},
    {"handler": without_context},
    {"handler": without_input},
    {"handler": our_optional},
    {"after": ["audit"]},
    {"condition": "validate gt 3"},
    {"condition": "validate gt 4"},
    {"condition": "validate gt 3", "on_unmet": "fail"},
    {"condition": "validate gt 3", "on_unmet": "skip_downstream"},
    {"on_exhausted": "skip"},
    {"on_exhausted": "skip_downstream"},
    {"may_skip": True},
    {"signal": Approval},
    {"signal": bool},
    {"signal": Signal(Approval, quorum=2)},
    {"signal": Signal(Approval, four_eyes=True)},
    {"signal": Signal(Approval, groups="owners")},
    {"signal": Signal(Approval, deadline=60)},
    {"signal": Signal(Approval, deadline=60, on_deadline={"ok": True})},
    {"signal": Signal(Approval, deadline=60, on_deadline={"ok": False})},
    {"delay": 60},
    {"deadline": 60},
    {"max_retries": 3},
    {"max_lost": 3},
    {"timeout": 3},
    {"timeout": timedelta(minutes=3)},
    {"isolation": "process"},
    {"concurrency": 3},
    {"batch_size": 3},
    {"on_cancel": "finish"},
    {"flow": {"queue": "mail"}},
    {"flow": {"description": "Ships orders."}},
    {"flow": {"output": "ship"}},
    {"flow": {"output": ["ship", "audit"]}},
    {"flow": {"output": ["audit", "ship"], "output_required": True}},
    {"flow": {"on_fail": "mail"}},
    {"flow": {"deadline": 60}},
    {"flow": {"retention": 60}},
    {"flow": {"input": Rush}},
]


def test_every_meaningful_option_makes_another_version() -> None:
    """F21."""
    found = [fingerprint(), *(fingerprint(**options) for options in MEANINGFUL)]

    repeated = [options for options, one in zip([{}, *MEANINGFUL], found, strict=True) if found.count(one) > 1]
    assert repeated == []


def test_options_that_are_spelled_out_as_they_are_by_default_change_nothing() -> None:
    assert fingerprint(max_retries=0, on_exhausted="fail", may_skip=False, isolation="thread") == fingerprint()
    assert fingerprint(flow={"queue": "default", "output": []}) == fingerprint()


def test_the_name_and_the_order_of_steps_that_may_be_the_output_count() -> None:
    """F8: by default the order of definition decides whose output it is."""
    definition = two_ends("first", "second").definition

    assert definition.fingerprint != two_ends("second", "first").definition.fingerprint
    assert definition.fingerprint != replace(definition, name="other").fingerprint


def two_ends(*names: str) -> Flow[Any, Any]:
    flow = Flow("ends")
    for name in names:
        flow.step(name=name)(ends)
    return flow


def ends() -> int: ...


def fingerprint_of(handler: Any, **options: Any) -> str:
    """The fingerprint of a step `last` of a flow that has a step `first`, which may be skipped."""
    with registry.isolated():
        flow = Flow("fingerprints")

        @flow.step(may_skip=True)
        def first() -> int:
            return 1

        flow.step(name="last", **options)(handler)
        return flow.definition.plan.step("last").fingerprint


def test_a_step_is_the_same_while_its_handler_is_called_in_the_same_way() -> None:
    """F21: a worker runs what it can call, whatever version of the flow it is of."""

    def last(input: Order, first: int | None) -> str: ...

    def elsewhere(input: Order, first: int | None) -> str: ...

    def differently(first: int | None, input: Order) -> str: ...

    same = fingerprint_of(last)

    assert fingerprint_of(elsewhere, condition="input.total gt 1", max_retries=3, timeout=5, delay=1) == same
    assert fingerprint_of(differently) == same  # arguments are passed by name


def test_a_step_is_another_when_its_handler_is_called_in_another_way() -> None:
    """F21."""

    def last(input: Order, first: int | None) -> str: ...

    def without_input(first: int | None) -> str: ...

    def other_input(input: Rush, first: int | None) -> str: ...

    def other_dependency(input: Order, first: float | None) -> str: ...

    def other_output(input: Order, first: int | None) -> int: ...

    def with_context(input: Order, first: int | None, ctx: Any) -> str: ...

    handlers = [last, without_input, other_input, other_dependency, other_output, with_context]
    fingerprints = [fingerprint_of(handler) for handler in handlers]
    fingerprints += [fingerprint_of(last, signal=Approval), fingerprint_of(last, signal=Order)]

    assert len(set(fingerprints)) == len(fingerprints)


def test_the_fingerprints_of_steps_add_nothing_to_that_of_the_flow(example: Any) -> None:
    plan = example.plan

    bare = replace(plan, steps=tuple(replace(step, fingerprint="") for step in plan.steps))

    assert bare.fingerprint() == plan.fingerprint() == example.fingerprint
