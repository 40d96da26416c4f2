"""R9a: who sleeps is woken after the commit by whatever gives a flow something to do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import transaction

from catbird_django import Flow
from catbird_django.models import Worker as WorkerRow
from catbird_django.statuses import StepStatus
from tests.support import until, working

pytestmark = pytest.mark.django_db(transaction=True)

FAR = timedelta(hours=1)


@pytest.fixture
def flow() -> Iterator[Flow[int, bool]]:
    """A flow that waits for a signal, and a worker that looks for work by itself once an hour."""
    declared: Flow[int, bool] = Flow("slow")

    @declared.step
    def first(input: int) -> int:
        return input

    @declared.step(signal=bool, delay=0.2)
    def approve(first: int, signal: bool) -> bool:
        return signal

    with working(poll_interval=FAR, idle_poll_interval=FAR, sweep_interval=FAR):
        until_it_sleeps()
        yield declared


def until_it_sleeps() -> None:
    until(lambda: WorkerRow.objects.filter(sleeping_since__isnull=False, stopped_at__isnull=True).exists())


def test_a_run_and_its_signal_wake_a_worker_and_the_upkeep_for_the_delay_that_follows(flow: Flow[int, bool]) -> None:
    """F12, F20."""
    with transaction.atomic():
        run = flow.run(1)
    until(lambda: run.steps()["approve"] is StepStatus.WAITING_FOR_SIGNAL)
    until_it_sleeps()

    run.signal("approve", True)

    assert run.wait(timeout=15) is True


def test_a_run_that_is_made_again_wakes_a_worker(flow: Flow[int, bool]) -> None:
    """F26."""
    old = flow.run(1)
    until(lambda: old.steps()["approve"] is StepStatus.WAITING_FOR_SIGNAL)
    old.cancel()
    until_it_sleeps()

    new = old.retry()

    until(lambda: new.steps()["approve"] is StepStatus.WAITING_FOR_SIGNAL)


def test_a_delayed_run_wakes_the_upkeep(flow: Flow[int, bool]) -> None:
    """F20."""
    run = flow.run(1, delay=0.3)

    until(lambda: run.steps()["approve"] is StepStatus.WAITING_FOR_SIGNAL)


def test_a_delayed_step_that_another_has_made_ready_wakes_the_upkeep() -> None:
    """F20: however long the upkeep would have slept."""
    patient: Flow[None, int] = Flow("patient")

    @patient.step
    def first() -> int:
        return 1

    @patient.step(delay=0.3)
    def second(first: int) -> int:
        return first + 1

    with working(sweep_interval=FAR):
        assert patient.run().wait(timeout=15) == 2
