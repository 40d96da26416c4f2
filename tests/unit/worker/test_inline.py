"""Inline steps: what is run in memory after a step, and what is left to the database (F6)."""

from __future__ import annotations

from typing import Any

import pytest

from catbird_django import Cancel, Flow, Optional, Retry, Skip
from catbird_django.definitions.registry import registry
from catbird_django.worker.inline import CompletionPlan, plan_completion
from tests.unit.worker.claims import handler_of, step_claim

MAX = 1000


@pytest.fixture(autouse=True)
def _only_these() -> Any:
    with registry.isolated():
        registry.flows.clear()
        yield


def tree() -> Flow[Any, Any]:
    """start → a → (b → c, d); e takes b and start, f takes d and is no inline step."""
    flow = Flow("tree")

    @flow.step
    def start(input: int) -> int: ...

    @flow.step(inline=True)
    def a(start: int) -> int:
        return start + 1

    @flow.step(inline=True)
    def b(a: int, input: int) -> int:
        return a * input

    @flow.step(inline=True)
    def c(b: int) -> str:
        return f"c{b}"

    @flow.step(inline=True)
    def d(a: int) -> list[int]:
        return [a]

    @flow.step
    def e(b: int, start: int) -> int: ...

    @flow.step
    def f(d: list[int]) -> int: ...

    return flow


def plan(completed: str, **known: Any) -> CompletionPlan:
    flow = tree().definition
    return plan_completion(flow, completed, known=known.get("known", flow.steps))


def test_chains_and_trees_of_inline_steps_run_in_memory_and_the_rest_is_the_frontier() -> None:
    assert plan("start") == (("a", "b", "d", "c"), ("e", "f"))


def test_an_inline_step_that_was_queued_takes_its_own_followers_along() -> None:
    assert plan("a") == (("b", "d", "c"), ("e", "f"))
    assert plan("b") == (("c",), ("e",))


def test_a_step_that_nobody_needs_is_followed_by_nothing() -> None:
    assert plan("c") == plan("e") == ((), ())


def test_an_inline_step_that_is_not_known_here_is_left_to_the_database_with_what_hangs_on_it() -> None:
    assert plan("start", known={"a", "c", "d"}) == (("a", "d"), ("e", "b", "f"))
    assert plan("start", known=()) == ((), ("a", "e"))


def test_each_is_given_what_its_predecessor_returned_as_if_it_had_been_stored() -> None:
    handler = handler_of(tree(), "start")

    outputs = handler.run_inline(step_claim(input="10"), "4", max_payload=MAX)

    assert outputs == (("a", "5"), ("b", "50"), ("d", "[5]"), ("c", '"c50"'))


def test_a_handler_that_knows_only_some_runs_only_those_and_what_they_need() -> None:
    handler = handler_of(tree(), "start")

    assert handler.knowing({"a", "b", "c", "d"}) is handler
    assert handler.knowing({"a", "c", "d"}).run_inline(step_claim(), "4", max_payload=MAX) == (("a", "5"), ("d", "[5]"))


@pytest.mark.parametrize("error", [ValueError(), Skip(), Cancel(), Retry(), SystemExit(), KeyboardInterrupt()])
def test_one_that_raises_is_left_out_with_what_hangs_on_it(error: BaseException) -> None:
    flow = Flow("broken")

    @flow.step
    def start() -> int: ...

    @flow.step(inline=True)
    def bad(start: int) -> int:
        raise error

    @flow.step(inline=True)
    def after_bad(bad: int) -> int:
        return bad

    @flow.step(inline=True)
    def good(start: int) -> int:
        return start

    assert handler_of(flow, "start").run_inline(step_claim(), "4", max_payload=MAX) == (("good", "4"),)


def test_one_that_returns_what_does_not_fit_or_is_too_big_is_left_out() -> None:
    flow = Flow("broken")

    @flow.step
    def start() -> int: ...

    @flow.step(inline=True)
    def bad(start: int) -> int:
        return "four"  # type: ignore[return-value] # as tests want it

    @flow.step(inline=True)
    def big(start: int) -> str:
        return "x" * MAX

    assert handler_of(flow, "start").run_inline(step_claim(), "4", max_payload=MAX) == ()


def test_an_output_that_might_be_missing_is_there() -> None:
    flow = Flow("optional")

    @flow.step(may_skip=True)
    def start() -> int: ...

    @flow.step(inline=True)
    def after(start: Optional[int]) -> int:
        return start.value if start.is_set else -1

    assert handler_of(flow, "start").run_inline(step_claim(), "4", max_payload=MAX) == (("after", "4"),)


def test_a_step_that_an_inline_step_follows_is_given_the_input_that_only_that_takes() -> None:
    assert tree().definition.plan.step("a").takes_input
