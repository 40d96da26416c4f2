"""T12: canceled from outside while queued, waiting in a worker, or running."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from catbird_django import Cancel, RunCanceled, RunNotFound, TaskContext, cancel_task, task
from catbird_django.models import TaskRun
from catbird_django.statuses import TaskStatus
from tests.factories import TaskFactory, TaskRunFactory
from tests.support import until, work_off, working

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_queued_run_never_runs() -> None:
    ran: list[int] = []

    @task
    def mail() -> None:
        ran.append(1)

    handle = mail.run()
    assert handle.cancel("changed my mind", actor="kim") is TaskStatus.CANCELED
    work_off("mail")

    assert ran == []
    with pytest.raises(RunCanceled):
        handle.wait(timeout=5)


def test_an_async_handler_is_cancelled() -> None:
    stopped = threading.Event()

    @task
    async def endless() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()

    with working("endless"):
        handle = endless.run()
        until(lambda: handle.status() is TaskStatus.STARTED)
        assert handle.cancel() is TaskStatus.CANCELING

        with pytest.raises(RunCanceled):
            handle.wait(timeout=10)
    assert stopped.is_set()


def test_a_sync_handler_sees_it_in_its_context() -> None:
    @task
    def endless(input: str, ctx: TaskContext) -> str:
        waiting = threading.Event()
        while not ctx.is_canceled:
            waiting.wait(0.01)
        ctx.stop_if_canceled()
        return "never"

    with working("endless"):
        handle = endless.run("")
        until(lambda: handle.status() is TaskStatus.STARTED)
        handle.cancel()

        with pytest.raises(RunCanceled):
            handle.wait(timeout=10)


@pytest.mark.parametrize("word", ["progress", "log", "heartbeat"])
def test_a_sync_handler_is_left_at_its_next_word(word: str) -> None:
    """T12: an exception at the next `ctx` call; T14."""
    left: list[BaseException] = []

    @task
    def endless(input: None, ctx: TaskContext) -> str:
        says = {"progress": lambda: ctx.progress(1), "log": lambda: ctx.log("on"), "heartbeat": ctx.heartbeat}[word]
        try:
            while True:
                until(lambda: ctx.is_canceled)
                says()
        except BaseException as error:
            left.append(error)
            raise

    with working("endless"):
        handle = endless.run()
        until(lambda: handle.status() is TaskStatus.STARTED)
        handle.cancel("enough", actor="kim")

        with pytest.raises(RunCanceled):
            handle.wait(timeout=10)
    assert [type(error).__name__ for error in left] == ["CancelRequested"]
    run = TaskRun.objects.get()
    assert (run.cancel_reason, run.canceled_by, run.error) == ("enough", "kim", None)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_that_may_finish_is_left_alone_and_its_result_counts(is_async: bool) -> None:
    """T12: on_cancel="finish": neither interrupted nor told, and without a grace."""
    release = threading.Event()

    def careful(input: None, ctx: TaskContext) -> bool:
        release.wait(10)
        ctx.log("still here")
        return ctx.is_canceled

    async def careful_async(input: None, ctx: TaskContext) -> bool:
        await asyncio.to_thread(release.wait, 10)
        ctx.log("still here")
        return ctx.is_canceled

    declared = task(name="careful", on_cancel="finish")(careful_async if is_async else careful)
    fast = {"cancel_grace": timedelta(0), "sweep_interval": timedelta(seconds=0.1), "lease": timedelta(seconds=1)}
    with working("careful", **fast):
        handle = declared.run()
        until(lambda: handle.status() is TaskStatus.STARTED)
        assert handle.cancel() is TaskStatus.CANCELING
        renewed = TaskRun.objects.get().lease_until
        until(lambda: TaskRun.objects.get().lease_until > renewed)
        release.set()

        assert handle.wait(timeout=10) is False
    assert handle.status() is TaskStatus.COMPLETED


def test_a_handler_whose_claim_was_lost_is_stopped_as_by_a_cancel() -> None:
    """W2: another worker has taken the run."""
    stopped: list[str] = []

    @task
    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append("async")
            raise

    @task
    def look(ctx: TaskContext) -> None:
        until(lambda: ctx.is_canceled)
        stopped.append("sync")

    handles = [wait.run(), look.run()]
    with working("wait", "look", lease=timedelta(seconds=1)):
        until(lambda: all(handle.status() is TaskStatus.STARTED for handle in handles))
        TaskRun.objects.update(delivery_token=uuid4())  # as if taken back, and claimed again
        until(lambda: sorted(stopped) == ["async", "sync"])


def test_a_run_that_waits_in_the_worker_is_canceled_before_its_turn() -> None:
    release = threading.Event()
    ran: list[int] = []

    @task
    def slow(input: int) -> None:
        ran.append(input)
        if input == 0:
            release.wait(10)

    with working("slow", concurrency=1) as worker:
        first, second = slow.run(0), slow.run(1)
        until(lambda: first.status() is TaskStatus.STARTED)
        second.cancel()
        release.set()
        first.wait(timeout=10)

        assert second.status() is TaskStatus.CANCELED
        assert worker.id
    assert ran == [0]


def test_a_handler_may_cancel_its_own_run_and_is_not_tried_again() -> None:
    @task(max_retries=5)
    def give_up() -> None:
        raise Cancel("the order is gone")

    handle = give_up.run()
    work_off("give_up")

    with pytest.raises(RunCanceled):
        handle.wait(timeout=5)
    assert TaskRun.objects.get().cancel_reason == "the order is gone"


@pytest.mark.parametrize(
    ("reason", "stored"), [("a\x00b", "a\\x00b"), ("half \ud800", "half \\ud800"), (42, "42"), ("x" * 9000, "x" * 2000)]
)
def test_whatever_the_reason_is_the_worker_lives_and_the_run_is_canceled(reason: Any, stored: str) -> None:
    runs: list[int] = []

    @task
    def give_up() -> None:
        runs.append(1)
        raise Cancel(reason)

    @task
    def go_on() -> str:
        return "done"

    canceled, other = give_up.run(), go_on.run()
    work_off("give_up", "go_on")

    assert (canceled.status(), other.status()) == (TaskStatus.CANCELED, TaskStatus.COMPLETED)
    assert (TaskRun.objects.get(id=canceled.id).cancel_reason, len(runs)) == (stored, 1)


def test_a_handler_that_will_not_stop_is_left_behind() -> None:
    release = threading.Event()

    @task
    def stubborn() -> str:
        release.wait(10)
        return "too late"

    fast = {"cancel_grace": timedelta(seconds=0.2), "sweep_interval": timedelta(seconds=0.1)}
    with working("stubborn", **fast):
        handle = stubborn.run()
        until(lambda: handle.status() is TaskStatus.STARTED)
        handle.cancel()

        with pytest.raises(RunCanceled):
            handle.wait(timeout=10)
        release.set()


def test_a_run_that_ended_stays_as_it_is() -> None:
    @task
    def mail() -> int:
        return 1

    handle = mail.run()
    work_off("mail")

    assert handle.cancel() is TaskStatus.COMPLETED
    assert handle.wait(timeout=5) == 1


def test_an_unknown_run_is_an_error() -> None:
    with pytest.raises(RunNotFound, match="999999"):
        cancel_task(999_999)


def test_the_command_cancels_and_says_what_became_of_each() -> None:
    @task
    def mail() -> None: ...

    first, second = mail.run(), mail.run()
    output = StringIO()

    call_command("catbird_cancel", str(first.id), str(second.id), reason="wrong address", stdout=output)

    assert output.getvalue() == f"{first.id}: canceled\n{second.id}: canceled\n"
    assert TaskRun.objects.filter(status="canceled", cancel_reason="wrong address").count() == 2
    with pytest.raises(CommandError, match="999999: unknown"):
        call_command("catbird_cancel", "999999")


def cancel_command(*arguments: str) -> str:
    written = StringIO()
    call_command("catbird_cancel", *arguments, stdout=written)
    return written.getvalue().strip()


def test_the_command_cancels_all_that_match_and_nothing_else() -> None:
    """X3."""
    pack, ship = TaskFactory(name="pack"), TaskFactory(name="ship")
    TaskRunFactory.create_batch(3, task=pack)
    others = [TaskRunFactory(task=pack, started=True), TaskRunFactory(task=ship), TaskRunFactory(completed=True)]

    printed = cancel_command("--all", "--task", "pack", "--status", "queued", "--yes", "--format", "json")

    assert printed == '{"canceled": 3}'
    assert {run.pk for run in TaskRun.objects.exclude(status="canceled")} == {run.pk for run in others}
    assert cancel_command("--all", "--queue", "elsewhere", "--yes") == "no run matches"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "name at least one run"),
        (("--task", "pack"), "go with --all"),
        (("1", "--all"), "not both"),
        (("--all", "--task", "nothing_of_that_name"), "no task named"),
        (("--all",), "1 runs match; say --yes"),
    ],
)
def test_the_command_cancels_nothing_that_was_not_clearly_asked_for(
    arguments: tuple[str, ...], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    TaskRunFactory()
    monkeypatch.setattr("sys.stdin", StringIO())

    with pytest.raises(CommandError, match=complaint):
        cancel_command(*arguments)

    assert TaskRun.objects.get().status == "queued"
