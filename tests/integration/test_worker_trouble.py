"""W5, F4a: what the database refuses, or cannot do just now, stops neither the worker nor the neighbours."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection

from catbird_django import task
from catbird_django.engine import tasks as engine
from catbird_django.engine.tasks import Delivery
from catbird_django.models import TaskRun
from catbird_django.worker import kinds, settlement
from catbird_django.worker.outcome import Completed, Outcome
from catbird_django.worker.settlement import Settlement
from tests.support import LONG_ENOUGH, USING, claim, queue_runs, register, register_worker, work_off, working

pytestmark = pytest.mark.django_db(transaction=True)

POISON = '{"n": 1e200000}'  # valid JSON, and more than jsonb can hold


def settle(outcomes: list[Outcome]) -> list[Delivery]:
    """Settle these outcomes as a worker does; return what it let go of."""
    let_go: list[Delivery] = []
    part = Settlement(using=USING, notify=False, settled=let_go.extend)
    for outcome in outcomes:
        part.add(outcome)
    part.start()
    assert part.stop(timeout=LONG_ENOUGH)
    return let_go


def claims(count: int) -> list[Any]:
    [task_id] = register("mail")
    queue_runs("mail", count)
    return claim((task_id, 0), worker_id=register_worker(), limit=count)


def test_one_result_that_cannot_be_stored_fails_its_run_and_its_neighbours_complete() -> None:
    """F4a."""
    first, poisoned, last = claims(3)

    let_go = settle([Completed(first, "1"), Completed(poisoned, POISON), Completed(last, "3")])

    assert [run.status for run in TaskRun.objects.order_by("id")] == ["completed", "failed", "completed"]
    assert "numeric" in TaskRun.objects.failed().get().error["message"]
    assert len(let_go) == 3


def raising(error: Exception, times: int, then: Callable[..., Any]) -> Callable[..., Any]:
    left = [error] * times

    def call(*args: Any, **kwargs: Any) -> Any:
        if left:
            raise left.pop()
        return then(*args, **kwargs)

    return call


def test_results_are_kept_until_the_database_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """W5."""
    monkeypatch.setattr(settlement, "SHORTEST_PAUSE", 0.01)
    gone = OperationalError("server closed the connection")
    monkeypatch.setattr(kinds, "TASKS", replace(kinds.TASKS, complete=raising(gone, 3, kinds.TASKS.complete)))
    held = claims(2)

    settle([Completed(held[0], "1"), Completed(held[1], "2")])

    assert [run.status for run in TaskRun.objects.order_by("id")] == ["completed"] * 2


def test_the_database_may_go_away_in_the_middle_of_a_poisoned_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement, "SHORTEST_PAUSE", 0.01)
    gone = OperationalError("server closed the connection")
    monkeypatch.setattr(kinds, "TASKS", replace(kinds.TASKS, fail=raising(gone, 2, kinds.TASKS.fail)))
    held = claims(3)

    settle([Completed(held[0], POISON), Completed(held[1], "1"), Completed(held[2], POISON)])

    assert [run.status for run in TaskRun.objects.order_by("id")] == ["failed", "completed", "failed"]


def backends() -> set[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
        return {pid for (pid,) in cursor.fetchall()}


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_a_worker_outlives_a_moment_without_its_functions() -> None:
    """As while a migration replaces them."""

    @task
    def mail() -> str:
        return "sent"

    with working("mail"):
        assert mail.run().wait(timeout=LONG_ENOUGH) == "sent"
        execute("ALTER FUNCTION cb_find_task_lanes RENAME TO cb_elsewhere")
        handle = mail.run()
        try:
            with pytest.raises(TimeoutError):
                handle.wait(timeout=0.5)
        finally:
            execute("ALTER FUNCTION cb_elsewhere RENAME TO cb_find_task_lanes")

        assert handle.wait(timeout=LONG_ENOUGH) == "sent"


def test_a_worker_outlives_the_end_of_all_its_connections() -> None:
    @task
    def mail() -> str:
        return "sent"

    others = backends()
    with working("mail"):
        assert mail.run().wait(timeout=LONG_ENOUGH) == "sent"
        execute(f"SELECT pg_terminate_backend(pid) FROM unnest(ARRAY{sorted(backends() - others)}) AS pid")

        assert mail.run().wait(timeout=LONG_ENOUGH) == "sent"


def test_a_worker_whose_part_has_died_does_not_pretend_to_live(monkeypatch: pytest.MonkeyPatch) -> None:
    @task
    def mail() -> None: ...

    def die(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(engine, "find_task_lanes", die)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    with pytest.raises(RuntimeError, match="ClaimLoop has died"):
        work_off("mail")


def test_a_worker_works_without_notifications() -> None:
    """R9: polling alone is correct."""

    @task
    def mail() -> str:
        return "sent"

    with working("mail", notify=False, poll_interval=timedelta(seconds=0.05)):
        assert mail.run().wait(timeout=LONG_ENOUGH) == "sent"
