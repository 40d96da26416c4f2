"""The runner of async handlers: several at a time, one outcome each, and nothing left behind for the next (W7)."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from catbird_django.engine.tasks import Delivery, TaskClaim
from catbird_django.worker.event_loop import LoopRunner
from catbird_django.worker.outcome import Completed, Failed, Outcome

PATIENCE = 10  # seconds
who = contextvars.ContextVar("who", default="nobody")


def claim(number: int) -> TaskClaim:
    return TaskClaim(
        run_id=number,
        delivery=Delivery(number, "token"),
        queue="default",
        handler_id=1,
        priority=0,
        input="null",
        headers=None,
        delivery_count=1,
        failure_count=0,
        lost_count=0,
    )


@contextmanager
def running(
    handler: Callable[[int], Awaitable[str]], *, slots: int
) -> Iterator[tuple[LoopRunner, queue.Queue[Outcome]]]:
    """A runner whose handler gets the number of the run and gives its output."""
    outcomes: queue.Queue[Outcome] = queue.Queue()

    async def run(claimed: TaskClaim, _threads: object) -> Outcome:
        return Completed(claimed, await handler(claimed.run_id))

    runner = LoopRunner(slots, run=run, finish=outcomes.put)
    runner.start()
    try:
        yield runner, outcomes
    finally:
        runner.stop()


def outputs(outcomes: queue.Queue[Outcome], count: int) -> dict[int, str]:
    got = [outcomes.get(timeout=PATIENCE) for _ in range(count)]
    return {outcome.claim.run_id: outcome.output for outcome in got if isinstance(outcome, Completed)}


def test_as_many_handlers_run_at_the_same_time_as_there_are_slots():
    together = threading.Barrier(2, timeout=PATIENCE)

    async def handler(number: int) -> str:
        await asyncio.to_thread(together.wait)
        return str(number)

    with running(handler, slots=2) as (runner, outcomes):
        runner.submit([claim(number) for number in range(6)])

        assert outputs(outcomes, 6) == {number: str(number) for number in range(6)}


def test_what_a_handler_sets_in_its_context_the_next_one_does_not_see():
    async def handler(number: int) -> str:
        before = who.get()
        who.set(f"run {number}")
        return before

    with running(handler, slots=1) as (runner, outcomes):
        runner.submit([claim(number) for number in range(5)])

        assert set(outputs(outcomes, 5).values()) == {"nobody"}


def test_a_cancelled_handler_does_not_take_the_next_one_with_it():
    has_begun = threading.Event()

    async def handler(number: int) -> str:
        if number == 0:
            has_begun.set()
            await asyncio.sleep(PATIENCE)
        await asyncio.sleep(0)
        return "undisturbed"

    with running(handler, slots=1) as (runner, outcomes):
        runner.submit([claim(0), claim(1)])
        assert has_begun.wait(PATIENCE)
        runner.cancel(claim(0).delivery)

        first = outcomes.get(timeout=PATIENCE)
        assert isinstance(first, Failed)
        assert "CancelledError" in first.error
        assert outputs(outcomes, 1) == {1: "undisturbed"}


def test_a_handler_that_cancels_its_own_task_spoils_nothing():
    async def handler(number: int) -> str:
        if number == 0:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # takes effect where it next waits: that must not be in the handler after it
        else:
            await asyncio.sleep(0)
        return "undisturbed"

    with running(handler, slots=1) as (runner, outcomes):
        runner.submit([claim(0), claim(1)])

        assert outputs(outcomes, 2) == {0: "undisturbed", 1: "undisturbed"}


def test_handlers_that_wait_for_nothing_leave_room_for_others():
    others_turn = threading.Event()

    async def handler(number: int) -> str:
        if number == 0:
            await asyncio.sleep(0)
            others_turn.set()
        return "done"

    with running(handler, slots=2) as (runner, outcomes):
        runner.submit([claim(number) for number in range(20_000)])

        assert others_turn.wait(PATIENCE)
        assert len(outputs(outcomes, 20_000)) == 20_000


def test_what_has_not_begun_can_be_taken_back():
    has_begun = threading.Event()
    may_end = threading.Event()

    async def handler(number: int) -> str:
        has_begun.set()
        await asyncio.to_thread(may_end.wait, PATIENCE)
        return str(number)

    with running(handler, slots=1) as (runner, outcomes):
        runner.submit([claim(0), claim(1), claim(2)])
        assert has_begun.wait(PATIENCE)

        assert [taken.run_id for taken in runner.take_back()] == [1, 2]
        may_end.set()
        assert outputs(outcomes, 1) == {0: "0"}
