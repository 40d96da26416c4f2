"""F6, F22: inline and atomic steps, as they are declared. F16: how a handler ends its flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catbird_django import CatbirdError, DefinitionError, complete_early
from catbird_django.client.flows import Flow, Optional
from catbird_django.client.interrupts import CompleteEarly
from catbird_django.definitions.plan import StepPlan

HERE = r"test_flow_inline_atomic\.py:\d+: "


def plan(flow: Flow[Any, Any], step: str) -> StepPlan:
    return flow.definition.plan.step(step)


def test_an_inline_step_takes_the_output_of_one_step_and_perhaps_the_input() -> None:
    """F6."""
    flow = Flow("order")

    @flow.step
    def total(input: list[float]) -> float: ...

    @flow.step(inline=True)
    def rounded(total: float) -> int: ...

    @flow.step(inline=True, depends_on=["total"], on_exhausted="skip")
    def share(whole: float, input: list[float]) -> int: ...

    assert [step.is_inline for step in flow.definition.plan.steps] == [False, True, True]
    assert flow.definition.inline_followers == {"total": ["rounded", "share"], "rounded": [], "share": []}


def test_who_runs_inline_steps_has_the_input_if_one_of_the_chain_takes_it() -> None:
    """F6: the worker that ran the step before it is sent what the whole chain needs."""
    flow = Flow("order")

    @flow.step
    def first() -> int: ...

    @flow.step(inline=True)
    def second(first: int) -> int: ...

    @flow.step(inline=True)
    def third(second: int, input: str) -> int: ...

    @flow.step(inline=True)
    def fourth(third: int) -> int: ...

    @flow.step
    def fifth(fourth: int) -> int: ...

    @flow.step
    def sixth(fifth: int, input: str) -> int: ...

    assert {step.name for step in flow.definition.plan.steps if step.takes_input} == {
        "first",
        "second",
        "third",
        "sixth",
    }


def test_an_inline_step_may_do_without_a_step_that_was_skipped() -> None:
    """F6, F11: it is queued like any step then."""
    flow = Flow("order")

    @flow.step(may_skip=True)
    def first() -> int: ...

    @flow.step(inline=True)
    def second(first: Optional[int]) -> int: ...

    assert plan(flow, "second").dependencies[0].is_optional


def test_an_inline_step_may_follow_a_reduce() -> None:
    """F6, F15."""
    flow = Flow("sums")

    @flow.reduce(over="input", initial=0)
    def total(acc: int, item: int) -> int: ...

    @flow.step(inline=True)
    def shown(total: int) -> str: ...

    assert flow.definition.inline_followers["total"] == ["shown"]


def of_one(first: int) -> int: ...
def of_two(first: int, second: int) -> int: ...
def of_none(input: int) -> int: ...
def of_context(first: int, ctx: Any) -> int: ...
async def of_one_async(first: int) -> int: ...


@pytest.mark.parametrize(
    ("handler", "options", "message"),
    [
        (of_two, {}, "it is inline, so it takes the output of exactly one step, not of 2"),
        (of_none, {}, "it is inline, so it takes the output of exactly one step, not of 0"),
        (of_context, {}, "it is inline, so it is no run of its own, and has no ctx"),
        (of_one_async, {}, "it is inline, so it cannot be async"),
        (of_one, {"after": ["second"]}, "and has no after of its own"),
        (of_one, {"condition": "first gt 3"}, "and has no condition of its own"),
        (of_one, {"signal": bool}, "and has no signal of its own"),
        (of_one, {"max_retries": 3}, "and has no max_retries of its own"),
        (of_one, {"backoff": (1, 2)}, "and has no backoff of its own"),
        (of_one, {"retry_on": ValueError}, "and has no retry_on of its own"),
        (of_one, {"delay": 3}, "and has no delay of its own"),
        (of_one, {"deadline": 3}, "and has no deadline of its own"),
        (of_one, {"timeout": 3}, "and has no timeout of its own"),
        (of_one, {"isolation": "process"}, "and has no isolation of its own"),
        (of_one, {"may_skip": True}, "and has no may_skip of its own"),
        (of_one, {"atomic": True}, "and has no atomic of its own"),
        (of_one, {"concurrency": 3}, "and has no concurrency of its own"),
        (of_one, {"batch_size": 3}, "and has no batch_size of its own"),
        (of_one, {"inline": "yes"}, "inline must be True or False, not 'yes'"),
    ],
)
def test_an_inline_step_refuses_at_once_what_only_a_run_of_its_own_could_have(
    handler: Callable[..., Any], options: dict[str, Any], message: str
) -> None:
    """F2, F6."""
    with pytest.raises(DefinitionError, match=f"{HERE}step '.*': .*{message}"):
        Flow("order").step(**{"inline": True, **options})(handler)


def test_an_inline_step_cannot_follow_a_map() -> None:
    """F6: who runs its last item does not have the others."""
    flow = Flow("sums")

    @flow.map(over="input")
    def double(item: int) -> int: ...

    @flow.step(inline=True)
    def total(double: list[int]) -> int: ...

    [problem] = flow.draft.problems()
    assert "step 'total' is inline, but 'double' is a map: whoever runs one of its items does not have" in str(problem)


def test_steps_and_maps_may_be_atomic() -> None:
    """F22: and workers that do not know it must not run them."""
    flow, other = Flow("order"), Flow("order")

    @flow.step(atomic=True, max_retries=3)
    def lines() -> list[int]: ...

    @flow.map(over="lines", atomic=True)
    def store(item: int) -> int: ...

    @other.step(name="lines", max_retries=3)
    def unaware_lines() -> list[int]: ...

    @other.map(over="lines", name="store")
    def unaware_store(item: int) -> int: ...

    assert [step.is_atomic for step in flow.definition.plan.steps] == [True, True]
    for step in ("lines", "store"):
        assert plan(flow, step).fingerprint != plan(other, step).fingerprint


def test_what_is_neither_inline_nor_atomic_says_so() -> None:
    flow = Flow("order")

    @flow.step
    def lines() -> list[int]: ...

    planned = plan(flow, "lines")
    assert (planned.is_inline, planned.is_atomic, planned.over, planned.max_failed_items) == (False, False, "", 0)


def of_nothing() -> int: ...
async def of_nothing_async() -> int: ...


@pytest.mark.parametrize(
    ("handler", "options", "message"),
    [
        (of_nothing_async, {}, "it is atomic, so it cannot be async: a transaction belongs to one thread"),
        (of_nothing, {"isolation": "process"}, 'it is atomic, so it cannot have isolation="process"'),
        (of_nothing, {"atomic": 1}, "atomic must be True or False, not 1"),
    ],
)
def test_an_atomic_step_refuses_at_once_what_leaves_its_transaction(
    handler: Callable[..., Any], options: dict[str, Any], message: str
) -> None:
    """F2, F22."""
    with pytest.raises(DefinitionError, match=f"{HERE}step '.*': {message}"):
        Flow("order").step(**{"atomic": True, **options})(handler)


def test_an_atomic_map_is_refused_the_same() -> None:
    """F22."""

    async def store(item: int) -> int: ...

    with pytest.raises(DefinitionError, match=f"{HERE}map 'store': it is atomic, so it cannot be async"):
        Flow("order").map(over="input", atomic=True)(store)


def test_completing_early_leaves_the_handler_with_the_output_and_the_reason() -> None:
    """F16."""
    with pytest.raises(CompleteEarly, match="found it") as raised:
        complete_early({"answer": 42}, "found it")

    assert (raised.value.output, raised.value.reason) == ({"answer": 42}, "found it")
    assert isinstance(raised.value, CatbirdError)
