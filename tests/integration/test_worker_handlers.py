"""What handlers may do to a worker, and what it does about it (W4, W7)."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction

from catbird_django import task
from catbird_django.models import TaskRun
from catbird_django.statuses import RunKind, TaskStatus
from tests.support import second_session, until, work_off, working

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_exit_in_a_handlers_own_task_does_not_end_the_loop() -> None:
    @task
    async def exits(input: bool) -> str:
        async def leave() -> None:
            raise SystemExit(3)

        if input:
            asyncio.get_running_loop().create_task(leave())
            await asyncio.sleep(0.05)
        return "still here"

    handles = [exits.run(True), exits.run(False), exits.run(False)]
    work_off("exits", concurrency=1)

    assert [handle.wait(timeout=5) for handle in handles[1:]] == ["still here"] * 2


def test_a_handler_that_stops_the_loop_does_not_end_it() -> None:
    @task
    async def stops(input: bool) -> str:
        if input:
            asyncio.get_running_loop().stop()
            await asyncio.sleep(0)
        return "still here"

    handles = [stops.run(True), stops.run(False)]
    work_off("stops", concurrency=1)

    assert [handle.wait(timeout=5) for handle in handles] == ["still here"] * 2


def test_a_cancel_that_lands_as_the_handler_returns_costs_no_slot() -> None:
    @task
    async def cancels_itself(input: bool) -> str:
        await sync_to_async(TaskRun.objects.count)()
        if input:
            asyncio.current_task().cancel()
        return "done"

    handles = [cancels_itself.run(True), cancels_itself.run(False)]
    work_off("cancels_itself", concurrency=1)

    assert handles[0].status() in {TaskStatus.COMPLETED, TaskStatus.FAILED}
    assert handles[1].wait(timeout=5) == "done"


class BrokenLog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("disk full")


def test_a_log_that_cannot_be_written_costs_no_slot() -> None:
    @task
    def fails(input: bool) -> str:
        if input:
            raise ValueError("no")
        return "done"

    broken = BrokenLog()
    logging.getLogger("catbird.worker").addHandler(broken)
    try:
        bad, good = fails.run(True), fails.run(False)
        work_off("fails", concurrency=1)
    finally:
        logging.getLogger("catbird.worker").removeHandler(broken)

    assert (bad.status(), good.status()) == (TaskStatus.FAILED, TaskStatus.COMPLETED)


def test_what_one_async_handler_sets_in_its_context_is_not_seen_by_the_next() -> None:
    tenant = contextvars.ContextVar("tenant", default="nobody")
    seen: list[str] = []

    @task
    async def looks() -> None:
        seen.append(tenant.get())
        tenant.set("somebody")

    looks.run_many([None] * 5)
    work_off("looks", concurrency=1)

    assert seen == ["nobody"] * 5


def test_async_handlers_do_not_wait_for_slow_sync_ones() -> None:
    release = threading.Event()

    @task
    def slow() -> None:
        release.wait(20)

    @task
    async def quick() -> str:
        return "at once"

    with working("slow", "quick", concurrency=1):
        running = slow.run()
        until(lambda: running.status() is TaskStatus.STARTED)
        try:
            assert quick.run().wait(timeout=5) == "at once"
        finally:
            release.set()


def test_a_lock_on_its_row_does_not_keep_a_worker_from_its_work() -> None:
    """A producer may have woken it in a transaction that is still open."""

    @task
    def mail() -> str:
        return "sent"

    with working("mail"), second_session() as other:
        assert mail.run().wait(timeout=5) == "sent"
        other.execute("SELECT id FROM cb_workers FOR UPDATE")

        assert mail.run().wait(timeout=5) == "sent"
        assert mail.run().wait(timeout=5) == "sent"


def test_plain_sql_that_notifies_in_its_transaction_locks_nobody() -> None:
    """R9a: p_notify only notifies."""

    @task
    def mail() -> str:
        return "sent"

    with working("mail") as worker:
        assert mail.run().wait(timeout=5) == "sent"
        with connection.cursor() as cursor, second_session() as other:
            cursor.execute("UPDATE cb_workers SET sleeping_since = now()")
            other.execute("SELECT * FROM cb_run_tasks('mail', ARRAY['null']::jsonb[], p_notify => true)")
            cursor.execute("SELECT id FROM cb_workers WHERE id = %s FOR UPDATE NOWAIT", [worker.id])

            assert cursor.fetchone() == (worker.id,)


def test_a_run_that_starts_another_is_not_the_end_of_until_idle() -> None:
    @task
    def child() -> None: ...

    @task
    def parent(input: int) -> None:
        child.run()
        if input:
            parent.run(input - 1)

    parent.run(20)
    work_off("parent", "child")

    assert TaskRun.objects.finished().count() == 42
    assert not TaskRun.objects.live().exists()


def test_an_announcement_that_a_notification_took_away_is_made_again() -> None:
    """Else the worker would sleep unannounced, and only its poll would find the next run."""
    from catbird_django.engine import workers

    @task
    def mail() -> str:
        return "sent"

    with working("mail"):
        for _ in range(10):
            workers.wake_workers(["default"], using="default")  # for work that another worker took
            assert mail.run().wait(timeout=2) == "sent"


def test_a_wake_up_that_fails_does_not_look_like_a_failed_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    from catbird_django.engine import workers

    @task
    def mail() -> None: ...

    def gone(*_: Any, **__: Any) -> None:
        raise OperationalError("server closed the connection")

    monkeypatch.setattr(workers, "wake_workers", gone)

    with transaction.atomic():
        mail.run()
    mail.run()

    assert TaskRun.objects.count() == 2


def test_a_caller_that_commits_by_hand_can_run_tasks_too() -> None:
    @task
    def mail() -> None: ...

    transaction.set_autocommit(False)
    try:
        mail.run()
        transaction.commit()
    finally:
        transaction.set_autocommit(True)

    assert TaskRun.objects.count() == 1


def test_a_declared_task_goes_to_the_queue_that_its_handler_has() -> None:
    from catbird_django import Task
    from catbird_django.definitions.registry import registry
    from tests.support import register

    register("resize", queue="images")
    registry.tasks.clear()
    remote: Task[Any, Any] = Task("resize")

    handle = remote.run({"width": 3})

    assert TaskRun.objects.get(id=handle.id).queue == "images"


async def test_many_can_await_at_once_and_each_has_its_timeout() -> None:
    """None of them holds a thread while it waits."""
    from catbird_django import WaitTimeout

    @task
    def mail() -> None: ...

    handles = await mail.arun_many([None] * 50)

    answers = await asyncio.gather(*(handle.await_(timeout=0.3) for handle in handles), return_exceptions=True)

    assert {type(answer) for answer in answers} == {WaitTimeout}


def test_a_notification_that_is_not_ours_wakes_everyone_and_harms_nobody() -> None:
    from catbird_django.client.waiting import Watch

    woken: list[int] = []
    watch = Watch("default")
    watch._waiting[RunKind.TASK, 1].add(lambda: woken.append(1))
    watch._waiting[RunKind.TASK, 2].add(lambda: woken.append(2))

    watch._wake("task_runs 2,3")
    assert woken == [2]
    watch._wake("task_runs all of them")
    assert sorted(woken) == [1, 2, 2]
