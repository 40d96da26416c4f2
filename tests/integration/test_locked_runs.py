"""A run that somebody else has locked waits; what was finished beside it does not (R6, W2)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from catbird_django import Flow, TaskContext, task
from catbird_django.models import Event, FlowRun, StepRun, TaskRun, Worker
from catbird_django.statuses import FlowStatus, TaskStatus
from tests.support import second_session, until, working

pytestmark = pytest.mark.django_db(transaction=True)

SOON = 3.0  # seconds; a lock that nobody waits for costs a fraction of one


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    opened = threading.Event()
    yield opened
    opened.set()


def statuses(model: Any = TaskRun) -> list[str]:
    return list(model.objects.order_by("id").values_list("status", flat=True))


def cancel(session: Any, run_id: int) -> None:
    session.execute("SELECT FROM cb_cancel_tasks(ARRAY[%s]::bigint[])", [run_id])


@pytest.mark.parametrize(("ends_by", "status"), [("commit", TaskStatus.CANCELED), ("rollback", TaskStatus.COMPLETED)])
def test_a_run_that_is_being_canceled_in_a_long_transaction_holds_up_no_neighbour(
    gate: threading.Event, ends_by: str, status: str
) -> None:
    @task
    def work(input: int) -> int:
        gate.wait(20)
        return input

    with working("work", concurrency=4), second_session() as session:
        locked, *others = [work.run(number) for number in range(4)]
        until(lambda: statuses() == [TaskStatus.STARTED] * 4)
        cancel(session, locked.id)

        gate.set()
        until(lambda: all(other.status() == TaskStatus.COMPLETED for other in others), seconds=SOON)
        assert work.run(5).wait(timeout=SOON) == 5  # whatever else this worker does goes on, too
        assert locked.status() == TaskStatus.STARTED

        getattr(session, ends_by)()
        until(lambda: locked.status() == status, seconds=SOON)


def test_failures_and_their_words_do_not_wait_for_a_locked_run_either(gate: threading.Event) -> None:
    """T14: what a handler has said is stored before its failure, and progress needs its run's lock."""

    @task
    def work(input: int, ctx: TaskContext) -> None:
        gate.wait(20)
        ctx.progress(1, 2, "half of it")
        raise ValueError("no")

    with working("work", concurrency=3), second_session() as session:
        locked, *others = [work.run(number) for number in range(3)]
        until(lambda: statuses() == [TaskStatus.STARTED] * 3)
        cancel(session, locked.id)

        gate.set()
        until(lambda: all(other.status() == TaskStatus.FAILED for other in others), seconds=SOON)
        assert TaskRun.objects.get(id=others[0].id).progress["message"] == "half of it"

        session.rollback()
        until(lambda: locked.status() == TaskStatus.FAILED, seconds=SOON)
        assert TaskRun.objects.get(id=locked.id).progress["message"] == "half of it"


@pytest.mark.parametrize(("ends_by", "status"), [("commit", FlowStatus.CANCELED), ("rollback", FlowStatus.COMPLETED)])
def test_a_flow_that_is_being_canceled_in_a_long_transaction_holds_up_no_other(
    gate: threading.Event, ends_by: str, status: str
) -> None:
    """F17."""
    flow = Flow("walk")

    @flow.step
    def go(input: int) -> int:
        gate.wait(20)
        return input

    with working(concurrency=4), second_session() as session:
        locked, *others = [flow.run(number) for number in range(4)]
        until(lambda: statuses(StepRun) == ["started"] * 4)
        session.execute("SELECT FROM cb_cancel_flows(ARRAY[%s]::bigint[])", [locked.id])

        gate.set()
        until(lambda: all(other.status() == FlowStatus.COMPLETED for other in others), seconds=SOON)
        assert FlowRun.objects.get(id=locked.id).status == FlowStatus.STARTED

        getattr(session, ends_by)()
        until(lambda: locked.status() == status, seconds=SOON)


def test_a_worker_that_is_stopped_meanwhile_waits_for_the_locked_one_alone(gate: threading.Event) -> None:
    """W4: within its grace; then it gives back what it still holds, and leaves the result that nobody takes."""
    stuck = threading.Event()

    @task
    def work(input: int) -> None:
        gate.wait(20)

    @task
    def hang() -> None:
        stuck.wait(30)

    with second_session() as session:
        with working("work", "hang", concurrency=3, shutdown_grace=timedelta(seconds=1)):
            locked, other, hanging = work.run(1), work.run(2), hang.run()
            until(lambda: statuses() == [TaskStatus.STARTED] * 3)
            cancel(session, locked.id)
            gate.set()
            until(lambda: other.status() == TaskStatus.COMPLETED, seconds=SOON)

        assert (locked.status(), hanging.status()) == (TaskStatus.STARTED, TaskStatus.QUEUED)
        assert Worker.objects.get().stopped_at is not None
    stuck.set()
    assert not Event.objects.filter(run_id=locked.id, event="released").exists()
