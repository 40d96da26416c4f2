"""What a step's handler is called with (F1, F5, F11)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from catbird_django import Flow, Optional, StepContext
from catbird_django.definitions.registry import Registry, registry
from catbird_django.errors import DefinitionError, PayloadError, UnknownName
from catbird_django.worker.step_arguments import parts_of
from catbird_django.worker.step_handlers import runnable_flows
from tests.unit.worker.claims import arguments, handler_of, step_claim


@pytest.fixture(autouse=True)
def _only_these() -> Any:
    with registry.isolated():
        registry.flows.clear()
        yield


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": 1},
        {"a": {"b": [1, 2, {"c": "}"}]}, "d": "x, y: {", "e": None, "f": [], "g": -1.50e3},
        {'quo"te': "back\\slash", "ünï": "💥", "é": "\n"},
    ],
)
def test_the_parts_of_an_object_are_its_own_text(value: dict[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False)  # with ", " and ": ", as PostgreSQL writes it

    assert {key: json.loads(part) for key, part in parts_of(text).items()} == value


def test_numbers_are_not_rewritten_on_their_way() -> None:
    assert parts_of('{"a": 1.10, "b": 12345678901234567890.1}') == {"a": "1.10", "b": "12345678901234567890.1"}


def test_a_step_is_given_each_thing_it_names() -> None:
    flow = Flow("order")

    @flow.step
    def first(input: int) -> int: ...

    @flow.step(signal=int, may_skip=True)
    def second(input: int, first: int, signal: int, ctx: StepContext) -> int: ...

    @flow.step(depends_on=["second"])
    def third(*, other: Optional[int]) -> int: ...

    given = arguments(
        handler_of(flow, "second"), step_claim(input="1", outputs='{"first": 2}', signal="3", headers='{"a": 1}')
    )
    ctx = given.pop("ctx")
    assert given == {"input": 1, "first": 2, "signal": 3}
    assert (ctx.run_id, ctx.flow, ctx.step, ctx.attempt, ctx.headers) == (5, "order", "second", 1, {"a": 1})
    assert arguments(handler_of(flow, "third"), step_claim(outputs="{}")) == {"other": Optional()}
    assert arguments(handler_of(flow, "third"), step_claim(outputs='{"second": 4, "x": 1}')) == {"other": Optional(4)}


def test_what_no_longer_fits_its_type_is_named() -> None:
    flow = Flow("order")

    @flow.step
    def first(input: int) -> int: ...

    @flow.step
    def second(first: int) -> int: ...

    with pytest.raises(PayloadError, match="first"):
        arguments(handler_of(flow, "second"), step_claim(outputs='{"first": "two"}'))


def test_everything_that_is_wrong_with_all_flows_is_said_at_once() -> None:
    """F2."""
    for name in ("one", "two"):
        flow = Flow(name)
        flow.step(name="lost")(lambda nowhere: nowhere)

    with pytest.raises(DefinitionError) as raised:
        runnable_flows(registry, None)

    assert str(raised.value).count("'nowhere'") == 2


def test_a_flow_that_is_not_declared_here_is_refused_by_name() -> None:
    with pytest.raises(UnknownName, match="no flow named 'nobody'"):
        runnable_flows(Registry(), ["nobody"])
