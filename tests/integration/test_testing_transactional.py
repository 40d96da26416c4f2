"""`work_until_idle()` in a test without a transaction (X4a)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, transaction

from catbird_django import Flow, task
from catbird_django.engine.tasks import Lane, LaneRequest, claim_tasks
from catbird_django.models import TaskRun
from catbird_django.testing import assert_completed, assert_failed, simulate, turn_clock, work_until_idle
from tests.support import LEASE, USING, register_worker, second_session, working

pytestmark = pytest.mark.django_db(transaction=True)


def test_handlers_commit_what_they_write() -> None:
    @task
    def sign_up(input: str) -> bool:
        Group.objects.create(name=input)
        return connection.in_atomic_block

    handle = sign_up.run("birds")
    work_until_idle()

    assert assert_completed(handle) is False
    with second_session() as session:
        assert session.execute("SELECT name FROM auth_group").fetchall() == [("birds",)]


def test_callbacks_are_run_at_the_commit() -> None:
    heard: list[str] = []

    @task
    def sign_up(input: str) -> None:
        with transaction.atomic():
            transaction.on_commit(lambda: heard.append("committed"))
            heard.append("in the block")
        heard.append("after it")

    sign_up.run("birds")
    work_until_idle()

    assert heard == ["in the block", "committed", "after it"]


def test_a_transaction_that_a_handler_leaves_open_is_rolled_back() -> None:
    """W7."""

    @task
    def forget(input: str) -> None:
        connection.cursor().execute("BEGIN")
        Group.objects.create(name=input)

    handle = forget.run("birds")
    work_until_idle()

    assert_completed(handle)
    assert not Group.objects.exists()


def test_a_handler_that_fails_in_a_broken_transaction_hurts_nobody_else() -> None:
    @task
    def sign_up(input: str) -> None:
        with transaction.atomic():
            Group.objects.create(name=input)

    runs = [sign_up.run(name) for name in ("birds", "birds", "cats")]
    ran = work_until_idle()

    assert ran.outcomes == ["completed", "failed", "completed"]
    assert_failed(runs[1], "duplicate key")


def test_an_async_test_works_in_a_thread_of_its_own() -> None:
    @task
    async def count(input: None) -> int:
        return await Group.objects.acount()

    async def in_a_loop() -> Any:
        handle = await count.arun()
        ran = await sync_to_async(work_until_idle)()
        assert ran.names == ["count"]
        return await handle

    assert asyncio.run(in_a_loop()) == 0


def test_what_real_workers_have_left_over_is_worked_off() -> None:
    @task
    def where(input: None) -> str:
        return threading.current_thread().name

    with working("where"):
        real = where.run()
        assert real.wait(timeout=15) != threading.current_thread().name
    handle = where.run()
    work_until_idle()

    assert assert_completed(handle) == threading.current_thread().name


def test_a_run_whose_worker_was_lost_is_taken_back() -> None:
    """W3: the upkeep finds leases that ran out."""

    @task
    def add(input: int) -> int:
        return input + 1

    handle = add.run(1)
    run = TaskRun.objects.get()
    claim_tasks(
        [LaneRequest(Lane("default", run.task_id, 0), 0, 1)], worker_id=register_worker(), lease=LEASE, using=USING
    )
    assert not work_until_idle()

    with turn_clock(LEASE, seconds=1):
        ran = work_until_idle()

    assert [attempt.number for attempt in ran] == [2]
    assert assert_completed(handle) == 2


def test_a_flow_with_a_delay_is_simulated() -> None:
    flow = Flow("waits")

    @flow.step(delay=3600)
    def later(input: int) -> int:
        return input

    run = flow.run(3)
    simulate(run)

    assert assert_completed(run) == 3
