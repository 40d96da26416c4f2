"""T7, T4: tried again, put off, delayed — with a real worker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from catbird_django import InvalidOption, Retry, Snooze, TaskContext, TaskFailed, task
from catbird_django.models import TaskRun
from catbird_django.statuses import TaskStatus
from tests.support import work_off, working

pytestmark = pytest.mark.django_db(transaction=True)


def make_due() -> None:
    """Let the time of every waiting run come."""
    TaskRun.objects.filter(visible_at__isnull=False).update(visible_at=Now() - timedelta(seconds=1))


def test_a_task_that_fails_twice_succeeds_at_the_third_attempt() -> None:
    attempts: list[int] = []

    @task(max_retries=3, backoff=(0, 0))
    def flaky(input: None, ctx: TaskContext) -> str:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ConnectionError("not yet")
        return "done"

    handle = flaky.run()
    for _ in range(3):
        make_due()
        work_off("flaky")

    assert handle.wait(timeout=5) == "done"
    assert attempts == [1, 2, 3]
    run = TaskRun.objects.get()
    assert (run.failure_count, run.delivery_count, run.error) == (2, 3, None)


def test_an_attempt_is_counted_for_each_failure_and_each_lost_worker_and_for_nothing_else() -> None:
    """T7a: ctx.attempt = failures + lost + 1, however many deliveries there were."""
    attempts: list[int] = []

    @task(max_retries=3)
    def look(input: None, ctx: TaskContext) -> None:
        attempts.append(ctx.attempt)

    look.run()
    TaskRun.objects.update(failure_count=2, lost_count=1, delivery_count=9)
    work_off("look")

    assert attempts == [4]
    assert TaskRun.objects.get().delivery_count == 10


def test_a_retry_comes_by_itself_when_its_time_has_come() -> None:
    """W6: the tick sleeps until the next due time it knows, and a new earlier one wakes it."""

    @task(max_retries=2, backoff=(0.05, 0.1))
    def flaky(input: None, ctx: TaskContext) -> int:
        if ctx.attempt < 3:
            raise ConnectionError
        return ctx.attempt

    with working("flaky", sweep_interval=timedelta(seconds=60)):
        assert flaky.run().wait(timeout=10) == 3


def test_a_delayed_run_comes_by_itself_too() -> None:
    @task
    def later() -> str:
        return "now"

    with working("later", sweep_interval=timedelta(seconds=60)):
        handle = later.run(delay=0.2)
        assert handle.status() is TaskStatus.QUEUED
        assert handle.wait(timeout=10) == "now"


def test_when_the_retries_are_used_up_the_run_fails_with_the_last_error() -> None:
    @task(max_retries=1, backoff=(0, 0))
    def hopeless(input: None, ctx: TaskContext) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    handle = hopeless.run()
    for _ in range(3):
        make_due()
        work_off("hopeless")

    with pytest.raises(TaskFailed, match="attempt 2"):
        handle.wait(timeout=5)
    assert TaskRun.objects.get().delivery_count == 2


def test_a_handler_may_say_when_to_try_again() -> None:
    @task(max_retries=1)
    def patient() -> None:
        raise Retry("the bank is closed", after=timedelta(hours=2))

    patient.run()
    work_off("patient")

    run = TaskRun.objects.annotate(now=Now()).get()
    assert (run.status, run.failure_count) == ("queued", 1)
    assert timedelta(hours=1, minutes=59) < run.visible_at - run.now <= timedelta(hours=2)


def test_a_handler_that_asks_for_it_is_tried_again_whatever_classes_the_task_names() -> None:
    @task(max_retries=1, retry_on=ConnectionError, no_retry_on=Retry)
    def ask(input: None, ctx: TaskContext) -> str:
        if ctx.attempt == 1:
            raise Retry(after=0)
        return "done"

    handle = ask.run()
    with working("ask"):
        assert handle.wait(timeout=10) == "done"


def test_a_retry_that_is_asked_for_needs_a_retry_left() -> None:
    @task
    def patient() -> None:
        raise Retry(after=1)

    handle = patient.run()
    work_off("patient")

    assert handle.status() is TaskStatus.FAILED


def test_snoozing_counts_nothing() -> None:
    """T7a."""

    @task
    def sleepy() -> None:
        raise Snooze(3600)

    sleepy.run()
    work_off("sleepy")

    run = TaskRun.objects.get()
    assert (run.status, run.failure_count, run.lost_count, run.delivery_count) == ("queued", 0, 0, 1)
    assert run.visible_at is not None


def test_a_backoff_that_raises_is_no_retry_and_the_worker_lives() -> None:
    def broken(failures: int) -> float:
        raise RuntimeError("oops")

    @task(max_retries=3, backoff=broken)
    def unlucky(input: bool) -> None:
        if input:
            raise ValueError

    bad, good = unlucky.run(True), unlucky.run(False)
    work_off("unlucky")

    assert (bad.status(), good.status()) == (TaskStatus.FAILED, TaskStatus.COMPLETED)


def test_run_at_keeps_the_time_asked_for() -> None:
    @task
    def later() -> None: ...

    moment = datetime(2040, 1, 1, tzinfo=UTC)
    later.run(run_at=moment)
    past = later.run(run_at=datetime(2001, 1, 1, tzinfo=UTC))

    assert TaskRun.objects.get(run_at=moment).visible_at == moment
    assert TaskRun.objects.get(id=past.id).visible_at is None


@pytest.mark.parametrize("delay", [90, 90.0, timedelta(seconds=90)])
def test_a_delay_is_a_number_of_seconds_or_a_timedelta(delay: Any) -> None:
    """T4, T3: queued, with the time asked for kept beside the time it becomes due."""

    @task
    def later() -> None: ...

    later.run(delay=delay)

    run = TaskRun.objects.get()
    assert (run.status, run.visible_at) == ("queued", run.run_at)
    assert run.run_at - run.queued_at == timedelta(seconds=90)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"delay": -1}, "delay"),
        ({"delay": "soon"}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": float("inf")}, "delay"),
        ({"delay": True}, "delay"),
        ({"run_at": datetime(2040, 1, 1)}, "run_at"),
        ({"run_at": "tomorrow"}, "run_at"),
        ({"delay": 1, "run_at": datetime(2040, 1, 1, tzinfo=UTC)}, "delay"),
    ],
)
def test_a_bad_time_is_refused_and_named(options: dict[str, Any], name: str) -> None:
    @task
    def later() -> None: ...

    with pytest.raises(InvalidOption, match=f"^{name}:"):
        later.run(**options)
