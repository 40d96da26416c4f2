"""T5: handles, and waiting for a run to end."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.db import connections, transaction

from catbird_django import (
    RunNotFound,
    TaskHandle,
    WaitInTransaction,
    WaitTimeout,
    arun_task,
    task,
)
from catbird_django.statuses import TaskStatus
from tests.support import until_nobody_listens, work_off

pytestmark = pytest.mark.django_db(transaction=True)


def test_waiting_for_an_unfinished_run_in_a_transaction_is_refused() -> None:
    """T5."""

    @task
    def charge() -> None: ...

    with transaction.atomic(), pytest.raises(WaitInTransaction, match="after the commit"):
        charge.run().wait(timeout=5)


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
