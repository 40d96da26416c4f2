"""T10, T4b: what a task allows of itself in one worker, and what that means for the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from catbird_django import task
from catbird_django.models import TaskRun
from catbird_django.models import Worker as WorkerRow
from tests.support import until, work_off, working

pytestmark = pytest.mark.django_db(transaction=True)

NEVER = timedelta(hours=1)


class Gauge:
    """How many are in it at the same time, at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1


def declare_sync(gauge: Gauge, **options: Any) -> Any:
    @task(name="narrow", **options)
    def narrow(input: int) -> int:
        with gauge:
            threading.Event().wait(0.01)
        return input

    return narrow


def declare_async(gauge: Gauge, **options: Any) -> Any:
    @task(name="narrow", **options)
    async def narrow(input: int) -> int:
        with gauge:
            await asyncio.sleep(0.01)
        return input

    return narrow


@pytest.mark.parametrize("declare", [declare_sync, declare_async])
def test_a_worker_runs_no_more_of_a_task_at_the_same_time_than_it_allows(declare: Callable[..., Any]) -> None:
    """T10: on threads and on the loop alike."""
    gauge, free = Gauge(), Gauge()
    narrow = declare(gauge, concurrency=2)
    narrow.run_many(range(40))
    work_off("narrow", concurrency=8)

    declare(free)
    narrow.run_many(range(40))
    work_off("narrow", concurrency=8)

    assert gauge.most == 2
    assert free.most > 2
    assert set(TaskRun.objects.values_list("status", flat=True)) == {"completed"}


@pytest.mark.parametrize(("options", "is_modest"), [({"batch_size": 0}, True), ({"batch_size": 5}, True), ({}, False)])
def test_a_worker_claims_no_more_ahead_than_the_batch_size(options: dict[str, int], is_modest: bool) -> None:
    """T10: quick runs are claimed ahead, as far as they may be."""
    in_flight: list[int] = []

    @task(**options)
    def quick(input: int) -> None:
        in_flight.append(worker._runners.in_flight)

    quick.run_many(range(1000))
    with working("quick", concurrency=2) as worker:
        until(lambda: TaskRun.objects.filter(status="completed").count() == 1000)

    assert (max(in_flight) <= 2 + options.get("batch_size", 0)) is is_modest


def test_work_of_others_finds_a_worker_whose_busy_task_is_at_its_limit() -> None:
    """T4b: a saturated handler does not clog the head, nor keep its worker from being woken."""
    begun, may_end = threading.Event(), threading.Event()

    @task(concurrency=1)
    def narrow(input: int) -> None:
        begun.set()
        assert may_end.wait(timeout=20)

    @task
    def wide() -> str:
        return "done"

    narrow.run_many(range(5), priority=50)
    with working("narrow", "wide", concurrency=4, poll_interval=NEVER, idle_poll_interval=NEVER):
        assert begun.wait(timeout=15)
        until(lambda: WorkerRow.objects.filter(sleeping_since__isnull=False).exists())

        assert wide.run(priority=-50).wait(timeout=10) == "done"
        until(lambda: WorkerRow.objects.filter(sleeping_since__isnull=False).exists())
        assert wide.run(priority=-50).wait(timeout=10) == "done"
        assert TaskRun.objects.started().count() == 1

        may_end.set()
        until(lambda: TaskRun.objects.filter(status="completed").count() == 7)


def test_lower_priorities_are_reached_when_the_higher_are_done_without_a_sweep() -> None:
    """T4b: old runs of a low priority, behind newer ones of a high one."""
    order: list[int] = []

    @task
    def note(input: int) -> None:
        order.append(input)

    for priority in (-5, 0, 5):
        note.run_many([priority] * 30, priority=priority)
    settings = {"poll_interval": NEVER, "idle_poll_interval": NEVER, "sweep_interval": NEVER}
    with working("note", **settings):
        until(lambda: len(order) == 90)

    assert order == [5] * 30 + [0] * 30 + [-5] * 30


def test_runs_that_nobody_here_can_run_keep_nobody_waiting() -> None:
    """T4b: unknown handlers do not clog the head."""

    @task
    def elsewhere() -> None: ...

    @task
    def here(input: int) -> int:
        return input

    elsewhere.run_many([None] * 500, priority=100)
    handles = here.run_many(range(20), priority=-100)

    work_off("here")

    assert {str(handle.status()) for handle in handles} == {"completed"}
    assert TaskRun.objects.queued().count() == 500


def test_a_suspect_run_is_run_although_lanes_are_full_of_others() -> None:
    """T7a: it is claimed once nothing waits, not when everything else is done."""
    places: list[str] = []

    @task
    def ordinary(input: int) -> None:
        places.append("ordinary")

    @task
    def suspect() -> None:
        places.append("suspect")

    ordinary.run_many(range(2000))
    suspect.run_many([None] * 3)
    TaskRun.objects.filter(task__name="suspect").update(lost_count=2, delivery_count=2)

    work_off("ordinary", "suspect", concurrency=2)

    assert len(places) == 2003
    assert places.index("suspect") < 1000


def test_a_worker_runs_one_suspect_at_a_time_and_claims_nothing_ahead_meanwhile() -> None:
    """T7a."""
    gauge = Gauge()
    begun, may_end = threading.Event(), threading.Event()

    @task
    def suspect() -> None:
        with gauge:
            begun.set()
            assert may_end.wait(timeout=20)

    @task
    def ordinary(input: int) -> None:
        begun.wait(timeout=20)

    suspect.run_many([None] * 3)
    TaskRun.objects.update(lost_count=2, delivery_count=2)
    with working("suspect", "ordinary", concurrency=3) as worker:
        assert begun.wait(timeout=15)
        ordinary.run_many(range(1000))
        while TaskRun.objects.filter(task__name="ordinary", status="completed").count() < 1000:
            assert worker._runners.in_flight <= 3
        assert TaskRun.objects.filter(task__name="suspect").queued().count() == 2
        may_end.set()
        until(lambda: TaskRun.objects.filter(task__name="suspect", status="completed").count() == 3)

    assert gauge.most == 1
