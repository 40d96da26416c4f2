"""Assertions of the test kit say why a run is not as expected (X4)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from catbird_django import Flow, FlowFailed, Task, TaskFailed, task
from catbird_django.testing import assert_completed, assert_failed, assert_status, work_until_idle

pytestmark = pytest.mark.django_db


def said_by(assertion: pytest.ExceptionInfo[AssertionError]) -> str:
    return str(assertion.value)


def test_a_completed_run_gives_its_output() -> None:
    @task
    def double(input: int) -> int:
        return input * 2

    run = double.run(4)
    work_until_idle()

    assert assert_completed(run) == 8
    assert_status(run, "completed")


def test_of_a_failed_task_the_traceback_is_shown() -> None:
    @task
    def fall(input: int) -> int:
        raise ValueError("no such bird")

    run = fall.run(4)
    work_until_idle()

    with pytest.raises(AssertionError) as assertion:
        assert_completed(run)
    assert f"<TaskHandle fall {run.id}> is failed, not completed" in said_by(assertion)
    assert 'raise ValueError("no such bird")' in said_by(assertion)
    assert isinstance(assert_failed(run, "no such bird"), TaskFailed)


def test_of_a_flow_it_is_said_what_its_steps_wait_for() -> None:
    """F25: what `explain()` says, and what went wrong so far."""
    flow = Flow("asks")

    @flow.step(signal=bool)
    def decide(signal: bool) -> bool:
        return signal

    @flow.step(max_retries=1, backoff=(600, 600))
    def call(input: int) -> int:
        raise ConnectionError("the bank is away")

    run = flow.run(1)
    work_until_idle()

    with pytest.raises(AssertionError) as assertion:
        assert_completed(run)
    assert f"<FlowHandle asks {run.id}> is started, not completed" in said_by(assertion)
    assert "decide waits for a signal" in said_by(assertion)
    assert "to be tried again" in said_by(assertion)
    assert "call has raised ConnectionError: the bank is away" in said_by(assertion)


def test_of_a_failed_flow_the_step_is_named() -> None:
    flow = Flow("falls")

    @flow.step
    def call(input: int) -> int:
        raise ConnectionError("the bank is away")

    run = flow.run(1)
    work_until_idle()

    with pytest.raises(AssertionError, match="in step 'call': the bank is away"):
        assert_completed(run)
    assert isinstance(assert_failed(run), FlowFailed)


def test_of_a_task_it_is_said_until_when_it_waits() -> None:
    @task(max_retries=1, backoff=(600, 600))
    def call(input: int) -> int:
        raise ConnectionError("the bank is away")

    tried, delayed = call.run(1), call.run(1, delay=timedelta(days=1))
    work_until_idle()

    with pytest.raises(AssertionError, match=r"is queued(?s:.*)waits until(?s:.*)ConnectionError: the bank is away"):
        assert_completed(tried)
    with pytest.raises(AssertionError, match="waits until"):
        assert_completed(delayed)


def test_of_a_task_that_nothing_keeps_back_it_is_asked_who_should_have_run_it() -> None:
    run = Task("elsewhere", input=int, output=int).run(1)
    work_until_idle()

    with pytest.raises(AssertionError, match="with its handler here"):
        assert_completed(run)


def test_a_failure_for_another_reason_is_not_taken_for_it() -> None:
    @task
    def fall(input: int) -> int:
        raise ValueError("no such bird")

    run = fall.run(4)
    work_until_idle()

    with pytest.raises(AssertionError, match=r"without saying 'timeout'.*no such bird"):
        assert_failed(run, "timeout")


def test_a_run_that_did_not_fail_is_no_failure() -> None:
    @task
    def double(input: int) -> int:
        return input * 2

    run = double.run(4)
    work_until_idle()

    with pytest.raises(AssertionError, match="is completed, not failed"):
        assert_failed(run)
