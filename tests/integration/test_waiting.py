"""T5: handles, and waiting for a run to end."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.db import connection, connections, transaction

from catbird_django import (
    RunCanceled,
    RunNotFound,
    TaskHandle,
    WaitInTransaction,
    WaitTimeout,
    arun_task,
    task,
)
from catbird_django.client import waiting
from catbird_django.statuses import TaskStatus
from tests.support import second_session, until_nobody_listens, work_off

pytestmark = pytest.mark.django_db(transaction=True)


def test_waiting_for_an_unfinished_run_in_a_transaction_is_refused() -> None:
    """T5."""

    @task
    def charge() -> None: ...

    with transaction.atomic(), pytest.raises(WaitInTransaction, match="after the commit"):
        charge.run().wait(timeout=5)


def test_a_run_that_has_ended_may_be_waited_for_in_a_transaction() -> None:
    """T5: only an unfinished one is refused."""

    @task
    def charge() -> int:
        return 7

    handle = charge.run()
    work_off("charge")

    with transaction.atomic():
        assert handle.wait() == 7


def test_who_waits_holds_no_transaction() -> None:
    """T5: neither an open one, nor a snapshot that would keep dead rows."""

    @task
    def charge() -> None: ...

    handle = charge.run()
    is_over = threading.Event()

    def wait() -> None:
        with pytest.raises(WaitTimeout):
            handle.wait(timeout=1)
        is_over.set()
        connections.close_all()

    waiter = threading.Thread(target=wait)
    waiter.start()
    held: set[tuple[str | None, bool]] = set()
    while not is_over.is_set():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT state, backend_xmin IS NOT NULL FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
                " AND now() - xact_start > interval '200 ms'"
            )
            held.update(cursor.fetchall())
    waiter.join(timeout=10)

    assert held == set()


def test_waiting_ends_at_its_timeout_and_the_run_goes_on() -> None:
    @task
    def charge() -> None: ...

    handle = charge.run()

    with pytest.raises(WaitTimeout, match="still queued"):
        handle.wait(timeout=0.05)
    assert handle.status() is TaskStatus.QUEUED


def test_a_handle_can_be_made_again_from_the_id() -> None:
    @task
    def charge() -> dict[str, int]:
        return {"a": 1}

    run_id = charge.run().id
    work_off("charge")

    assert TaskHandle(run_id).wait(timeout=5) == {"a": 1}
    with pytest.raises(RunNotFound, match="999999"):
        TaskHandle(999_999).status()


def test_a_waiting_caller_is_told_without_polling(settings: Any) -> None:
    """T5: waiting uses notifications."""
    settings.CATBIRD = {"POLL_INTERVAL": 60}
    until_nobody_listens()
    release = threading.Event()

    @task
    def slow() -> str:
        release.wait(10)
        return "at last"

    handle = slow.run()
    worker = threading.Thread(target=lambda: (work_off("slow"), connections.close_all()))
    worker.start()
    waiter_answers: list[str] = []
    waiter = threading.Thread(target=lambda: (waiter_answers.append(handle.wait(timeout=20)), connections.close_all()))
    waiter.start()
    release.set()
    waiter.join(timeout=15)
    worker.join(timeout=15)

    assert waiter_answers == ["at last"]


def test_an_old_transaction_elsewhere_is_asked_for_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[int] = []
    find_writers = waiting.find_writers

    def ask(**options: Any) -> Any:
        questions.append(1)
        return find_writers(**options)

    monkeypatch.setattr(waiting, "find_writers", ask)

    @task
    def charge() -> None: ...

    handle = charge.run()
    with second_session() as session:
        session.execute("SELECT pg_current_xact_id()")
        with pytest.raises(WaitTimeout):
            handle.wait(timeout=1.5)

    assert 3 < len(questions) < 15


async def test_async_twins() -> None:
    """Section 16."""

    @task
    async def double(input: int) -> int:
        return input * 2

    handle = await double.arun(2)
    others = await double.arun_many([3])
    by_name = await arun_task("double", 4)
    await asyncio.to_thread(lambda: (work_off("double"), connections.close_all()))

    assert await handle == 4
    assert await others[0].await_(timeout=5) == 6
    assert await by_name.await_(timeout=5) == 8
    assert await handle.astatus() is TaskStatus.COMPLETED
    again = await handle.aretry()
    assert await again.acancel("not needed", actor="kim") is TaskStatus.CANCELED
    with pytest.raises(RunCanceled):
        await again
