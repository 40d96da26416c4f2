"""T9: circuit breakers, with real workers."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from catbird_django import task
from catbird_django.models import Breaker, Event, TaskRun
from catbird_django.models import Worker as WorkerRow
from tests.support import until, work_off, working

pytestmark = pytest.mark.django_db(transaction=True)

NEVER = timedelta(hours=1)


class Bank:
    """Something that many runs need, and that may be down."""

    def __init__(self) -> None:
        self.is_down = True
        self.calls = 0
        self._lock = threading.Lock()

    def call(self) -> str:
        with self._lock:
            self.calls += 1
        if self.is_down:
            raise ConnectionError("the bank does not answer")
        return "paid"


@pytest.fixture
def bank() -> Bank:
    return Bank()


def test_a_task_that_fails_again_and_again_rests_and_its_runs_use_no_attempt(bank: Bank) -> None:
    """T9: what was claimed ahead is given back, what is queued stays so."""

    @task(breaker=(5, 3600))
    def pay(input: int) -> str:
        return bank.call()

    pay.run_many(range(300))
    work_off("pay", concurrency=2)

    assert 5 <= bank.calls < 25  # as it opens, others are under way
    runs = TaskRun.objects.all()
    assert runs.filter(status="failed").count() == bank.calls
    left = runs.filter(status="queued")
    assert left.count() == 300 - bank.calls
    assert not left.filter(failure_count__gt=0).exists()
    assert not left.filter(lost_count__gt=0).exists()
    assert Event.objects.filter(event="breaker_opened").count() == 1


def test_after_the_rest_it_is_tried_and_all_goes_on(bank: Bank) -> None:
    """T9: the worker wakes for it by itself, long before its next poll."""

    @task(breaker=(2, 0.5), max_retries=100, backoff=lambda failures: 0.01)
    def pay(input: int) -> str:
        return bank.call()

    handles = pay.run_many(range(100))
    with working("pay", concurrency=2, poll_interval=NEVER, idle_poll_interval=NEVER):
        until(lambda: Event.objects.filter(event="breaker_opened").count() >= 3)  # opened, and tried twice
        calls = bank.calls
        bank.is_down = False
        assert {handle.wait(timeout=20) for handle in handles} == {"paid"}

    # At most what was under way when it opened, and then one by one.
    assert calls < 25
    assert Event.objects.filter(event="breaker_closed").count() == 1
    breaker = Breaker.objects.get()
    assert (breaker.failure_count, breaker.open_until, breaker.trial_run_id) == (0, None, None)


def test_of_two_workers_one_tries(bank: Bank) -> None:
    """T9: exactly one trial at a time, across all workers; once it is over the other is woken, too."""
    trying, may_end = threading.Event(), threading.Event()

    @task(breaker=(1, 3600), max_retries=1, backoff=lambda failures: 0.01)
    def pay(input: int) -> str:
        if not bank.is_down:
            trying.set()
            assert may_end.wait(timeout=20)
        return bank.call()

    @task
    def other() -> str:
        return "done"

    pay.run_many(range(20))
    work_off("pay", concurrency=1)
    bank.is_down = False
    before = bank.calls
    with ExitStack() as workers:
        for _ in range(2):
            workers.enter_context(working("pay", "other", concurrency=4, idle_poll_interval=timedelta(seconds=0.2)))
        until(lambda: WorkerRow.objects.filter(sleeping_since__isnull=False).count() == 2)
        Breaker.objects.update(open_until=Now())

        assert trying.wait(timeout=15)
        # Both workers look for work meanwhile, and do what there is.
        assert {other.run().wait(timeout=10) for _ in range(10)} == {"done"}
        assert TaskRun.objects.filter(task__name="pay", status="started").count() == 1
        assert bank.calls == before
        may_end.set()
        until(lambda: not TaskRun.objects.filter(task__name="pay", status__in=["queued", "started"]).exists())

    assert Event.objects.filter(event="breaker_closed").count() == 1
    assert Breaker.objects.get().failure_count == 0


def test_an_open_breaker_keeps_no_other_task_from_its_work(bank: Bank) -> None:
    """T4b, T9: its lanes are not asked for, and its worker sleeps to be woken."""

    @task(breaker=(1, 3600))
    def pay(input: int) -> str:
        return bank.call()

    @task
    def other() -> str:
        return "done"

    pay.run_many(range(50), priority=100)
    with working("pay", "other", concurrency=2, poll_interval=NEVER, idle_poll_interval=NEVER):
        until(lambda: WorkerRow.objects.filter(sleeping_since__isnull=False).exists())
        assert other.run(priority=-100).wait(timeout=10) == "done"
