"""The clock of a test's database is turned, and goes right again afterwards (X4, X4a)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test.utils import _TestState
from django.utils import timezone

from catbird_django import Flow, RunExpired, TaskContext, task
from catbird_django.statuses import StepStatus
from catbird_django.testing import (
    OnlyInTests,
    TurnedClock,
    assert_completed,
    assert_failed,
    restore_clock,
    turn_clock,
    work_until_idle,
)
from catbird_django.testing.pytest_plugin import turn_clock as turning  # noqa: F401 - a fixture

in_transaction = pytest.mark.django_db
without_transaction = pytest.mark.django_db(transaction=True)


def now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT _cb_now()")
        moment: datetime = cursor.fetchone()[0]
    return moment


def ahead() -> timedelta:
    """How far the clock of the database is ahead of ours, which is the same machine's."""
    return timedelta(minutes=round((now() - timezone.now()) / timedelta(minutes=1)))


def source() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT prosrc FROM pg_proc WHERE oid = '_cb_now'::regproc")
        [text] = cursor.fetchone()
    return str(text)


@pytest.fixture
def untouched(db: None) -> Iterator[None]:
    """The clock's definition is, in the end, what the migration installed."""
    before = source()
    yield
    assert source() == before


@in_transaction
def test_turns_add_up_and_the_clock_goes_on() -> None:
    turn_clock(minutes=5)
    turn_clock(timedelta(days=400), hours=1)

    assert ahead() == timedelta(days=400, minutes=65)
    assert now() < now()


@in_transaction
def test_what_a_savepoint_takes_back_it_takes_back_of_the_clock_too(untouched: None) -> None:
    """X4a: by DDL in the test's transaction, which is rolled back with everything else."""
    savepoint = transaction.savepoint()
    turn_clock(days=1)
    assert ahead() == timedelta(days=1)

    transaction.savepoint_rollback(savepoint)

    assert ahead() == timedelta(0)


@in_transaction
def test_the_first_of_two_tests_turns_the_clock() -> None:
    turn_clock(days=7)

    assert ahead() == timedelta(days=7)


@in_transaction
def test_and_the_second_knows_nothing_of_it() -> None:
    assert ahead() == timedelta(0)


@without_transaction
def test_without_a_transaction_a_block_puts_it_back(untouched: None) -> None:
    with turn_clock(days=1):
        with turn_clock(days=1):
            assert ahead() == timedelta(days=2)
        assert ahead() == timedelta(days=1)

    assert ahead() == timedelta(0)


@without_transaction
def test_without_a_transaction_emptying_the_database_puts_it_back(untouched: None) -> None:
    """What Django does after each TransactionTestCase."""
    turn_clock(days=1)

    call_command("flush", interactive=False, verbosity=0)

    assert ahead() == timedelta(0)


@without_transaction
def test_without_a_transaction_the_fixture_puts_it_back(
    untouched: None,
    turning: Callable[..., TurnedClock],  # noqa: F811 - a fixture too
) -> None:
    """Before the database is emptied, which may not be told to anybody."""
    turning(days=1)
    turning(days=1)

    assert ahead() == timedelta(days=2)


@without_transaction
def test_it_can_be_put_back_at_any_time(untouched: None) -> None:
    turn_clock(days=1)

    restore_clock()

    assert ahead() == timedelta(0)


@in_transaction
def test_a_block_whose_transaction_is_broken_says_what_broke_it() -> None:
    with pytest.raises(DatabaseError, match="no_such_table"), transaction.atomic(), turn_clock(days=1):
        connection.cursor().execute("SELECT * FROM no_such_table")

    assert ahead() == timedelta(0)


@in_transaction
@pytest.mark.parametrize("by", [timedelta(0), timedelta(minutes=-1)])
def test_it_does_not_go_back(by: timedelta) -> None:
    with pytest.raises(ValueError, match="forward"):
        turn_clock(by)


@in_transaction
def test_a_database_that_is_not_made_for_tests_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "NAME", "production")
    monkeypatch.setitem(connection.settings_dict, "TEST", {"NAME": None})

    for forbidden in (lambda: turn_clock(days=1), restore_clock, work_until_idle):
        with pytest.raises(OnlyInTests, match="'production'"):
            forbidden()


@in_transaction
def test_outside_of_a_test_run_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.delattr(_TestState, "saved_data")

    with pytest.raises(OnlyInTests, match="test runner"):
        work_until_idle()


@in_transaction
def test_a_retry_waits_for_its_backoff() -> None:
    """T7."""

    @task(max_retries=2, backoff=lambda failures: failures * 60)
    def charge(input: str, ctx: TaskContext) -> int:
        if ctx.attempt < 3:
            raise ConnectionError("the bank is away")
        return ctx.attempt

    handle = charge.run("card")
    outcomes: list[Any] = [work_until_idle().outcomes]
    for minutes in (1, 1, 1):
        turn_clock(minutes=minutes)
        outcomes.append(work_until_idle().outcomes)

    assert outcomes == [["retrying"], ["retrying"], [], ["completed"]]
    assert assert_completed(handle) == 3


@in_transaction
def test_delayed_runs_come_when_their_time_has_come_and_others_expire() -> None:
    """T4."""

    @task
    def remind(input: str) -> str:
        return input

    soon = remind.run("soon", delay=timedelta(days=1))
    late = remind.run("late", run_at=now() + timedelta(days=2))
    never = remind.run("never", delay=timedelta(days=2), expires_at=now() + timedelta(days=1, hours=2))
    turn_clock(days=1, seconds=1)
    work_until_idle()
    assert [run.status() for run in (soon, late, never)] == ["completed", "queued", "queued"]

    turn_clock(days=1)
    work_until_idle()

    assert assert_completed(late) == "late"
    with pytest.raises(RunExpired):
        never.wait()


@in_transaction
def test_what_is_too_late_fails_its_flow() -> None:
    """F20: a deadline, and a step that waits."""
    slow = Flow("slow", deadline=3600)

    @slow.step
    def first(input: None) -> int:
        return 1

    @slow.step(delay=1800)
    def second(first: int) -> int:
        return first + 1

    good = slow.run()
    work_until_idle()
    turn_clock(minutes=31)
    work_until_idle()
    assert assert_completed(good) == 2
    bad = slow.run()
    work_until_idle()
    assert bad.steps() == {"first": StepStatus.COMPLETED, "second": StepStatus.QUEUED}

    turn_clock(hours=1)
    work_until_idle()

    assert_failed(bad, "deadline")


@in_transaction
def test_a_breaker_lets_a_task_rest() -> None:
    """T9."""

    @task(breaker=(2, 60))
    def call(input: int) -> None:
        if input < 2:
            raise ConnectionError

    call.run_many(range(4))
    assert work_until_idle().outcomes == ["failed", "failed"]

    turn_clock(seconds=61)

    assert work_until_idle().outcomes == ["completed", "completed"]
