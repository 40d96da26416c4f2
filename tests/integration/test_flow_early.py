"""Flows that a step or an item ends early, with a real worker (F16)."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from catbird_django import Flow, FlowFailed, StepContext, complete_early, task
from catbird_django.models import FlowRun, Item, StepRun
from tests.support import until, work_off, working

pytestmark = pytest.mark.django_db(transaction=True)


def statuses(run_id: int) -> dict[str, str]:
    steps = StepRun.objects.filter(flow_run_id=run_id).select_related("step")
    return {one.step.name: one.status for one in steps}


def lookup_flow(**options: Any) -> Flow[Any, Any]:
    """A flow that looks something up, and asks only when it is not known."""
    flow = Flow("lookup", input=int)

    @flow.step(**options)
    def lookup(input: int) -> int:
        if input:
            complete_early(f"known: {input}", "it was known")
        return input

    @flow.step
    def ask(lookup: int) -> int:
        return lookup

    @flow.step
    def answer(ask: int) -> str:
        return f"asked: {ask}"

    return flow


@pytest.mark.parametrize("options", [{}, {"atomic": True}])
def test_a_step_may_end_its_flow_with_the_flows_output(options: dict[str, Any]) -> None:
    flow = lookup_flow(**options)
    runs = [flow.run(number) for number in (0, 7)]
    work_off()

    assert [run.wait(timeout=5) for run in runs] == ["asked: 0", "known: 7"]
    ended = FlowRun.objects.get(id=runs[1].id)
    assert (ended.status, ended.early_reason) == ("completed", "it was known")
    assert statuses(ended.id) == {"lookup": "completed", "ask": "canceled", "answer": "canceled"}


def test_an_output_that_is_not_the_flows_fails_the_attempt() -> None:
    flow = Flow("lookup")

    @flow.step
    def lookup() -> int:
        complete_early(["no number"])

    run = flow.run()
    work_off()

    with pytest.raises(FlowFailed, match="output of the flow"):
        run.wait(timeout=5)


def test_an_item_may_end_the_flow_and_the_others_are_not_begun() -> None:
    flow = Flow("search", input=list[int])
    seen: list[int] = []

    @flow.map(over="input")
    def look(item: int) -> int:
        seen.append(item)
        if item == 3:
            complete_early([item], "found")
        return item

    run = flow.run(list(range(500)))
    work_off(concurrency=1, prefetch=1)

    assert run.wait(timeout=5) == [3]
    assert len(seen) < 100
    assert not Item.objects.filter(status__in=["queued", "started", "canceling"]).exists()


def test_work_that_runs_elsewhere_is_told_and_what_it_brings_is_dropped() -> None:
    """R8a."""
    flow = Flow("race", input=int)
    began, told = threading.Event(), threading.Event()

    @flow.step
    def slow(input: int, ctx: StepContext) -> int:
        began.set()
        until(lambda: ctx.is_canceled)
        told.set()
        return input

    @flow.step
    def quick(input: int) -> int:
        assert began.wait(10)
        complete_early(-1, "quick enough")

    with working(concurrency=2, lease=timedelta(seconds=1)):
        run = flow.run(5)
        assert run.wait(timeout=10) == -1
        assert told.wait(10)

    assert statuses(run.id)["slow"] == "canceled"


def test_of_several_that_want_to_end_it_the_first_wins() -> None:
    flow = Flow("race", input=list[int])
    together = threading.Barrier(4, timeout=10)

    @flow.map(over="input")
    def look(item: int) -> int:
        together.wait()
        complete_early([item], f"because of {item}")

    for _ in range(5):
        run = flow.run([1, 2, 3, 4])
        work_off(concurrency=4)
        [winner] = run.wait(timeout=5)
        assert FlowRun.objects.get(id=run.id).early_reason == f"because of {winner}"
        won = Item.objects.get(flow_run_id=run.id, status="completed")
        assert won.input == winner
        assert Counter(Item.objects.filter(flow_run_id=run.id).values_list("status", flat=True))["canceled"] == 3


def test_a_task_cannot_complete_early() -> None:
    @task
    def lonely() -> None:
        complete_early(1)

    run = lonely.run()
    work_off()

    with pytest.raises(Exception, match="only a step of a flow"):
        run.wait(timeout=5)
