"""T8: an attempt that takes too long is stopped, or given up."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction

from catbird_django import task
from catbird_django.models import TaskRun, Worker
from catbird_django.statuses import TaskStatus
from tests.support import until, work_off, working

pytestmark = pytest.mark.django_db(transaction=True)


def error_of(handle: Any) -> dict[str, str]:
    return TaskRun.objects.get(id=handle.id).error


def test_an_async_handler_is_cancelled() -> None:
    cancelled: list[bool] = []

    @task(timeout=0.1)
    async def slow() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    handle = slow.run()
    work_off("slow")

    assert cancelled == [True]
    assert (error_of(handle)["type"], error_of(handle)["message"]) == ("HandlerTimeout", "took longer than 0.1 s")


def test_a_timeout_error_of_the_handlers_own_is_not_taken_for_ours() -> None:
    @task(timeout=30)
    async def slow() -> None:
        raise TimeoutError("the bank is slow")

    handle = slow.run()
    work_off("slow")

    assert error_of(handle)["message"] == "the bank is slow"


def test_a_sync_handler_is_interrupted_at_its_next_step() -> None:
    @task(timeout=0.1)
    def slow() -> None:
        while True:
            time.sleep(0.01)

    handle = slow.run()
    worker = work_off("slow", concurrency=1)

    assert (error_of(handle)["type"], error_of(handle)["message"]) == ("HandlerTimeout", "took longer than 0.1 s")
    assert "time.sleep(0.01)" in error_of(handle)["traceback"]
    assert worker.abandoned_count == 0


def test_a_query_that_takes_too_long_is_canceled_and_its_connection_given_up() -> None:
    backends: list[int] = []

    @task(timeout=0.3)
    def slow(input: bool) -> str:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            backends.append(cursor.fetchone()[0])
            if input:
                cursor.execute("SELECT pg_sleep(60)")
        return "done"

    hanging, quick = slow.run(True), slow.run(False)
    worker = work_off("slow", concurrency=1, interrupt_grace=_seconds(20))

    assert (error_of(hanging)["type"], error_of(hanging)["message"]) == ("HandlerTimeout", "took longer than 0.3 s")
    assert quick.status() is TaskStatus.COMPLETED
    assert backends[0] != backends[1]
    assert worker.abandoned_count == 0


def test_a_timeout_is_tried_again_as_the_policy_says() -> None:
    attempts: list[int] = []

    @task(timeout=0.1, max_retries=1, backoff=(0, 0), retry_on=TimeoutError)
    def slow() -> str:
        attempts.append(1)
        while len(attempts) == 1:
            time.sleep(0.01)
        return "second time lucky"

    handle = slow.run()
    with working("slow"):
        assert handle.wait(timeout=20) == "second time lucky"
    assert TaskRun.objects.get(id=handle.id).failure_count == 1


def test_a_thread_that_cannot_be_stopped_is_replaced_and_its_late_result_dropped() -> None:
    release = threading.Event()
    left: list[bool] = []

    @task(timeout=0.1)
    def stubborn(input: bool) -> str:
        while input and not release.is_set():
            try:
                time.sleep(0.01)
            except TimeoutError:
                continue
        left.append(input)
        return "done"

    stuck = stubborn.run(True)
    with working("stubborn", concurrency=1, interrupt_grace=_seconds(0.2), max_abandoned=5) as worker:
        until(lambda: stuck.status() is TaskStatus.FAILED)
        try:
            assert stubborn.run(False).wait(timeout=10) == "done"
            until(lambda: Worker.objects.get(id=worker.id).abandoned_count == 1)
        finally:
            release.set()
        until(lambda: True in left)
        assert stubborn.run(False).wait(timeout=10) == "done"

    assert error_of(stuck)["message"] == "took longer than 0.1 s, and could not be stopped"
    assert TaskRun.objects.get(id=stuck.id).failure_count == 1
    assert worker.abandoned_count == 1


def test_a_thread_that_an_async_handler_waits_for_holds_up_neither_its_run_nor_its_slot() -> None:
    release = threading.Event()

    @task(timeout=0.1)
    async def ask(input: bool) -> str:
        if input:
            await sync_to_async(release.wait)(30)
        return "done"

    stuck = ask.run(True)
    try:
        with working("ask", concurrency=1, interrupt_grace=_seconds(0.2), max_abandoned=5) as worker:
            until(lambda: stuck.status() is TaskStatus.FAILED)
            assert ask.run(False).wait(timeout=10) == "done"
            until(lambda: Worker.objects.get(id=worker.id).abandoned_count == 1)
    finally:
        release.set()

    assert error_of(stuck)["message"] == "took longer than 0.1 s"


def test_after_too_many_of_them_the_worker_drains() -> None:
    release = threading.Event()

    @task(timeout=0.05)
    def stubborn() -> None:
        while not release.is_set():
            try:
                time.sleep(0.01)
            except TimeoutError:
                continue

    handles = stubborn.run_many([None] * 2)
    try:
        worker = work_off("stubborn", concurrency=1, interrupt_grace=_seconds(0.1), max_abandoned=2)
    finally:
        release.set()

    assert worker.needs_replacement
    assert {handle.status() for handle in handles} == {TaskStatus.FAILED}
    assert Worker.objects.get(id=worker.id).abandoned_count == 2


def _seconds(count: float) -> Any:
    from datetime import timedelta

    return timedelta(seconds=count)
