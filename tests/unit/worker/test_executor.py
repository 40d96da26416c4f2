"""What becomes of an attempt: completed with what runs inline, ended early, released when its lists cannot be read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext
from django.db import OperationalError

from catbird_django import Flow, complete_early, task
from catbird_django.client.context import NobodyListens
from catbird_django.definitions.registry import registry
from catbird_django.engine.steps import Claim
from catbird_django.engine.tasks import Delivery, TaskClaim
from catbird_django.worker.executor import Executor
from catbird_django.worker.handlers import Handler, build_handlers
from catbird_django.worker.isolation.messages import claim_as_json, claim_from_json, outcome_as_json, outcome_from_json
from catbird_django.worker.outcome import Completed, EndedEarly, Failed, Outcome, Released, Settled
from catbird_django.worker.watchdog import Watchdog
from tests.unit.worker.claims import MAP_RUN, StoredItems, handler_of, item_claim, step_claim


@dataclass
class Answer:
    text: str


@pytest.fixture(autouse=True)
def _only_these() -> Any:
    with registry.isolated():
        registry.flows.clear()
        registry.tasks.clear()
        yield


def run(handler: Handler, claim: Claim, *, is_canceled: Callable[[Claim], bool] = lambda _: False) -> Outcome:
    executor = Executor(
        {claim.handler_id: handler},
        max_payload=1000,
        is_canceled=is_canceled,
        reporter_for=lambda _: NobodyListens(),
        watchdog=Watchdog(grace=timedelta(seconds=1), abandoned=lambda _: None),
        clean_up=lambda: None,
    )
    return asyncio.run(_run_async(executor, claim)) if handler.is_async else executor.run(claim)


async def _run_async(executor: Executor, claim: Claim) -> Outcome:
    async with ThreadSensitiveContext() as threads:
        return await executor.run_async(claim, threads)


def asking() -> Flow[Any, Any]:
    flow = Flow("asking")

    @flow.step
    def lookup(input: int) -> int:
        complete_early({"text": "known"} if input else 7, "it was known")

    @flow.step
    async def lookup_async(input: int) -> int:
        complete_early(Answer("known"), "it was known")

    @flow.map(over="input_list", name="each")
    def each(item: int) -> int:
        complete_early(Answer("known"))

    @flow.step
    def input_list(lookup: int, lookup_async: int) -> list[int]: ...

    @flow.step
    def answer(each: list[int]) -> Answer: ...

    return flow


@pytest.mark.parametrize("step", ["lookup", "lookup_async"])
def test_a_step_that_completes_early_gives_the_output_of_its_flow(step: str) -> None:
    """F16."""
    claim = step_claim(input="1")

    assert run(handler_of(asking(), step), claim) == EndedEarly(claim, '{"text":"known"}', "it was known")


def test_an_item_may_complete_its_flow_early_too() -> None:
    """F16."""
    claim = item_claim("1")

    assert run(handler_of(asking(), "each"), claim) == EndedEarly(claim, '{"text":"known"}', "")


def test_an_early_output_that_is_not_the_flows_fails_the_attempt() -> None:
    """F16."""
    outcome = run(handler_of(asking(), "lookup"), step_claim(input="0"))

    assert isinstance(outcome, Failed)
    assert "output of the flow" in json.loads(outcome.error)["message"]


def test_a_task_cannot_complete_a_flow_early() -> None:
    """F16."""

    @task
    def lonely() -> None:
        complete_early(1)

    [handler] = build_handlers([lonely.definition], {"lonely": 4}).values()
    outcome = run(handler, TaskClaim(1, Delivery(1, "t"), "default", 4, 0, "null", None, 1, 0, 0))

    assert isinstance(outcome, Failed)
    assert "only a step of a flow" in json.loads(outcome.error)["message"]


@pytest.mark.parametrize("is_async", [False, True])
def test_inline_steps_run_once_the_step_has_returned(is_async: bool) -> None:
    """F6."""
    flow = Flow("inline")

    @flow.step(name="start")
    def start(input: int) -> int:
        return input

    @flow.step(name="start_async")
    async def start_async(input: int) -> int:
        return input

    before = "start_async" if is_async else "start"
    flow.step(name="after", inline=True, depends_on=[before])(lambda given: given + 1)

    claim = step_claim(input="4")
    outcome = run(handler_of(flow, before), claim)

    assert outcome == Completed(claim, "4", (("after", "5"),))
    assert outcome_from_json(claim, json.loads(json.dumps(outcome_as_json(outcome)))) == outcome


def test_a_claim_is_given_back_without_charge_while_its_list_cannot_be_read() -> None:
    """F14a."""
    flow = Flow("numbers")

    @flow.map(over="input")
    def double(item: int) -> int: ...

    @flow.step
    def total(double: list[int]) -> int: ...

    @flow.reduce(over="double", initial=0)
    def most(acc: int, item: int) -> int: ...

    items = StoredItems([1])
    items.is_gone = OperationalError("the server is gone")
    for step in ("total", "most"):
        outcome = run(handler_of(flow, step, items), step_claim(lists=f'{{"double": {MAP_RUN}}}'))
        assert isinstance(outcome, Released)
        assert outcome.delay


def test_a_canceled_run_does_not_complete_its_flow_early() -> None:
    """F17."""
    asked = iter([False, True])
    claim = step_claim(input="0")

    assert run(handler_of(asking(), "lookup"), claim, is_canceled=lambda _: next(asked)) == Released(claim)


@pytest.mark.parametrize("claim", [step_claim(lists='{"a": 1}'), item_claim("[1]", index=3, is_error=True)])
def test_claims_and_outcomes_find_their_way_to_another_process_and_back(claim: Claim) -> None:
    """R11."""
    there = claim_from_json(json.loads(json.dumps(claim_as_json(claim))))
    early = EndedEarly(claim, "1", "because")

    assert type(there) is type(claim)
    assert there._replace(delivery=claim.delivery) == claim
    assert outcome_from_json(claim, json.loads(json.dumps(outcome_as_json(early)))) == early
    with pytest.raises(ValueError, match="only the worker"):
        outcome_as_json(Settled(claim))
