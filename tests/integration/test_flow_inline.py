"""Inline steps with a real worker: completed together with the step whose output they take (F6)."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from catbird_django import Flow, FlowFailed, Optional, Skip
from catbird_django.models import StepRun
from tests.support import work_off

pytestmark = pytest.mark.django_db(transaction=True)


def step_runs(run_id: int) -> dict[str, StepRun]:
    steps = StepRun.objects.filter(flow_run_id=run_id).select_related("step")
    return {one.step.name: one for one in steps}


def deliveries(run_id: int) -> dict[str, int]:
    """How often each step was claimed by itself."""
    return {name: run.delivery_count for name, run in step_runs(run_id).items()}


@pytest.mark.parametrize("is_async", [False, True])
def test_chains_and_trees_run_in_memory_and_others_are_queued_after_them(is_async: bool) -> None:
    flow = Flow("tree")

    def start(input: int) -> int:
        return input

    async def start_async(input: int) -> int:
        return input

    flow.step(name="start")(start_async if is_async else start)

    @flow.step(inline=True)
    def a(start: int) -> int:
        return start + 1

    @flow.step(inline=True)
    def b(a: int, input: int) -> str:
        return f"{a} of {input}"

    @flow.step(inline=True)
    def c(a: int) -> list[int]:
        return [a] * a

    @flow.step
    def total(c: list[int], start: int) -> int:
        return sum(c) + start

    @flow.map(over="c")
    def doubled(item: int) -> int:
        return 2 * item

    @flow.step
    def end(b: str, total: int, doubled: list[int]) -> str:
        return f"{b}: {total}, {doubled}"

    run = flow.run(2)
    work_off()

    assert run.wait(timeout=5) == "3 of 2: 11, [6, 6, 6]"
    assert deliveries(run.id) == {"start": 1, "a": 0, "b": 0, "c": 0, "total": 1, "doubled": 0, "end": 1}
    assert {run.status for run in step_runs(run.id).values()} == {"completed"}


def test_a_flow_may_end_with_an_inline_step() -> None:
    flow = Flow("short")

    @flow.step
    def start(input: int) -> int:
        return input

    @flow.step(inline=True)
    def end(start: int) -> str:
        return f"{start}!"

    runs = [flow.run(number) for number in range(30)]
    work_off()

    assert [run.wait(timeout=5) for run in runs] == [f"{number}!" for number in range(30)]
    assert deliveries(runs[0].id) == {"start": 1, "end": 0}


def test_one_that_raises_is_queued_like_any_step_and_what_hangs_on_it_goes_with_that() -> None:
    flow = Flow("grumpy")
    tries: list[str] = []

    @flow.step
    def start(input: int) -> int:
        return input

    @flow.step(inline=True)
    def moody(start: int) -> int:
        tries.append(threading.current_thread().name)
        if len(tries) == 1:
            raise ValueError("not yet")
        return start + 1

    @flow.step(inline=True)
    def after(moody: int) -> int:
        return moody * 10

    @flow.step(inline=True)
    def good(start: int) -> int:
        return start

    @flow.step
    def end(after: int, good: int) -> list[int]:
        return [after, good]

    run = flow.run(4)
    work_off()

    assert run.wait(timeout=5) == [50, 4]
    assert deliveries(run.id) == {"start": 1, "moody": 1, "after": 0, "good": 0, "end": 1}


def test_one_that_raises_again_fails_the_flow() -> None:
    flow = Flow("broken")

    @flow.step
    def start(input: int) -> int:
        return input

    @flow.step(inline=True)
    def bad(start: int) -> int:
        raise ValueError(f"never {start}")

    run = flow.run(4)
    work_off()

    with pytest.raises(FlowFailed, match="never 4"):
        run.wait(timeout=5)
    assert step_runs(run.id)["start"].status == "completed"


def test_one_after_a_step_that_was_skipped_runs_by_itself_or_is_skipped_too() -> None:
    """F11."""
    flow = Flow("skipping")

    @flow.step(may_skip=True)
    def start(input: int) -> int:
        if not input:
            raise Skip("nothing")
        return input

    @flow.step(inline=True)
    def shown(start: Optional[int]) -> str:
        return str(start.value) if start.is_set else "nothing"

    runs = [flow.run(number) for number in (0, 1)]
    work_off()

    assert [run.wait(timeout=5) for run in runs] == ["nothing", "1"]
    assert [deliveries(run.id)["shown"] for run in runs] == [1, 0]


def test_one_after_a_reduce_and_after_an_atomic_step_runs_with_it() -> None:
    """F15, F22."""
    flow = Flow("mixed", input=list[int])

    @flow.reduce(over="input", initial=0)
    def total(acc: int, item: int) -> int:
        return acc + item

    @flow.step(inline=True)
    def half(total: int) -> float:
        return total / 2

    @flow.step(atomic=True)
    def stored(half: float) -> float:
        return half

    @flow.step(inline=True)
    def shown(stored: float) -> str:
        return f"{stored:.1f}"

    run = flow.run([1, 2])
    work_off()

    assert run.wait(timeout=5) == "1.5"
    assert deliveries(run.id) == {"total": 1, "half": 0, "stored": 1, "shown": 0}


def numbers_flow(*, shown: Any) -> Flow[Any, Any]:
    """A version of a flow, whose second step is this."""
    flow = Flow("numbers", input=int)

    @flow.step
    def start(input: int) -> int:
        return input

    flow.step(name="shown", inline=True)(shown)
    return flow


def test_a_run_of_an_older_version_is_not_given_the_inline_steps_of_the_newer() -> None:
    """F21: the older step takes something else, and waits for a worker that has it."""
    from catbird_django.definitions.registry import registry

    def shown(start: int) -> str:
        return f"old {start}"

    def shown_anew(start: float) -> float:
        return -1.0

    old = numbers_flow(shown=shown)
    run = old.run(4)
    registry.flows.clear()
    new = numbers_flow(shown=shown_anew)
    later = new.run(5)
    work_off()

    assert later.wait(timeout=5) == -1.0
    assert step_runs(run.id)["start"].status == "completed"
    assert step_runs(run.id)["shown"].status == "queued"

    registry.flows.clear()
    registry.add_flow(old.draft)
    work_off()
    assert run.wait(timeout=5) == "old 4"


def test_inline_steps_run_where_their_predecessor_ran() -> None:
    flow = Flow("here")

    @flow.step
    def start() -> tuple[int, str]:
        return os.getpid(), threading.current_thread().name

    @flow.step(inline=True)
    def after(start: tuple[int, str]) -> bool:
        return start == (os.getpid(), threading.current_thread().name)

    run = flow.run()
    work_off()

    assert run.wait(timeout=5) is True
