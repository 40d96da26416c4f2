"""T8, W7: a handler in a process of its own may crash, hang or be killed, and the worker lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from django.db import connection

from catbird_django import TaskHandle
from catbird_django.client.context import NobodyListens
from catbird_django.definitions.registry import registry
from catbird_django.engine.tasks import Delivery, TaskClaim
from catbird_django.models import RunLog, TaskRun
from catbird_django.statuses import TaskStatus
from catbird_django.worker.handlers import build_handlers
from catbird_django.worker.isolation.processes import HandlerProcesses
from catbird_django.worker.outcome import Completed
from catbird_django.worker.recycling import Limits
from tests.support import until, until_no_transaction_is_open, work_off, working
from tests.unruly import tasks as unruly

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).parents[2]
GRACE = timedelta(milliseconds=300)


@pytest.fixture(autouse=True)
def _unruly_tasks(
    _only_the_tasks_of_the_test: None, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Let the processes of handlers find the tasks and the database of this test."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.unruly.settings")
    for value in vars(unruly).values():
        if definition := getattr(value, "definition", None):
            registry.add(definition)
    yield
    until(lambda: not handler_processes())


def handler_processes() -> list[psutil.Process]:
    """The processes that workers of this test have started for handlers."""
    children = psutil.Process().children()
    return [child for child in children if any("isolation.child" in part for part in command_of(child))]


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def error_of(handle: TaskHandle[Any]) -> dict[str, str]:
    return TaskRun.objects.get(id=handle.id).error


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("segfault", "its process was killed by SIGSEGV"),
        ("exit", "its process ended with exit code 3"),
        ("kill", "its process was killed by SIGKILL, perhaps for want of memory"),
    ],
)
def test_a_process_that_dies_is_a_failed_attempt_and_the_neighbours_finish(way: str, message: str) -> None:
    neighbours = unruly.take_time.run_many([0.5] * 3)
    other = unruly.misbehave.run("nothing")
    handle = unruly.misbehave.run(way)

    work_off(concurrency=8)

    run = TaskRun.objects.get(id=handle.id)
    assert (run.status, run.failure_count, run.lost_count) == ("failed", 1, 0)
    assert (run.error["type"], run.error["message"]) == ("HandlerDied", message)
    assert {handle.status() for handle in [*neighbours, other]} == {TaskStatus.COMPLETED}


def test_a_death_is_tried_again_as_the_policy_says() -> None:
    handle = unruly.die_once.run()

    with working("die_once"):
        assert handle.wait(timeout=30) == 2


@pytest.mark.parametrize(
    ("way", "error_type", "message"),
    [
        ("sys.exit", "SystemExit", "that was all"),
        ("unspeakable", "Unspeakable", "(its __str__ raised RuntimeError)"),
        ("endless", "ValueError", "x" * 8192 + " …"),
        ("too large", "PayloadError", "output: "),
        ("no json", "PayloadError", "output: "),
    ],
)
def test_what_goes_wrong_inside_is_told_as_anywhere(way: str, error_type: str, message: str) -> None:
    handle = unruly.misbehave.run(way)

    work_off(concurrency=1)

    error = error_of(handle)
    assert error["type"] == error_type
    assert error["message"].startswith(message)
    assert len(error["message"]) < 10_000


def test_a_copy_that_a_handler_makes_by_fork_says_nothing() -> None:
    handle = unruly.misbehave.run("fork")

    work_off(concurrency=1)

    assert handle.wait(timeout=1) == "parent"


def test_retry_snooze_and_cancel_mean_the_same_there() -> None:
    """T7."""
    retried, snoozed, canceled = (unruly.interrupt.run(way) for way in ("retry", "snooze", "cancel"))

    work_off(concurrency=1)

    assert error_of(retried)["message"] == "again"
    assert (snoozed.status(), TaskRun.objects.get(id=snoozed.id).failure_count) == (TaskStatus.QUEUED, 0)
    assert TaskRun.objects.get(id=snoozed.id).visible_at is not None
    assert canceled.status() is TaskStatus.CANCELED
    assert TaskRun.objects.get(id=canceled.id).cancel_reason == "not wanted"


def test_async_handlers_run_there_too() -> None:
    handle = unruly.add.run([1, 2, 3])

    work_off(concurrency=1)

    assert handle.wait(timeout=1) == 6


def test_a_process_is_used_again_and_there_are_never_more_than_slots() -> None:
    handles = unruly.where.run_many([""] * 20)

    work_off(concurrency=2)

    pids = {handle.wait(timeout=1) for handle in handles}
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids


@pytest.mark.parametrize("limits", [Limits(runs=1), Limits(memory=1)])
def test_a_process_that_has_done_enough_or_has_grown_too_large_is_replaced(limits: Limits) -> None:
    """W8."""
    processes = HandlerProcesses(max_payload=1000, limits=limits, interrupt_grace=GRACE, is_canceled=lambda _: False)
    [handler] = build_handlers([unruly.where.definition], {"where": 1}).values()
    claim = TaskClaim(1, Delivery(1, ""), "default", 1, 0, '""', None, 1, 0, 0)

    first, second = (processes.run(handler, claim, NobodyListens()) for _ in range(2))
    processes.stop()

    assert isinstance(first, Completed)
    assert isinstance(second, Completed)
    assert first.output != second.output


@pytest.mark.parametrize("name", ["loop_too_long", "sleep_async", "query_too_long"])
def test_a_handler_that_takes_too_long_is_interrupted(name: str) -> None:
    handle = getattr(unruly, name).run()

    work_off(concurrency=1, interrupt_grace=timedelta(seconds=20))

    assert (error_of(handle)["type"], error_of(handle)["message"]) == ("HandlerTimeout", "took longer than 0.3 s")
    assert queries_in_sleep() == 0


def queries_in_sleep() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
        return int(cursor.fetchone()[0])


def test_a_handler_that_no_interrupt_reaches_is_killed_and_nothing_is_abandoned() -> None:
    handle = unruly.sleep_too_long.run()

    worker = work_off(concurrency=1, interrupt_grace=GRACE)

    assert error_of(handle)["type"] == "HandlerTimeout"
    assert error_of(handle)["message"] == "took longer than 0.3 s, and its process was killed"
    assert worker.abandoned_count == 0


def test_what_a_handler_says_is_stored_and_a_cancel_stops_it_at_its_next_word() -> None:
    """T12, T14."""
    handle = unruly.talk.run()

    with working("talk", interrupt_grace=timedelta(seconds=20), lease=timedelta(seconds=1)):
        until(lambda: RunLog.objects.filter(run_id=handle.id).exists())
        until(lambda: TaskRun.objects.get(id=handle.id).progress)
        handle.cancel()
        until(lambda: handle.status() is TaskStatus.CANCELED)

    progress = TaskRun.objects.get(id=handle.id).progress
    assert {**progress, "at": ""} == {"done": 1, "total": 2, "message": "half way", "at": ""}
    assert RunLog.objects.get(run_id=handle.id).message == "hello"


@pytest.mark.parametrize("name", ["be_deaf", "talk_async"])
def test_a_cancel_stops_an_async_handler_and_kills_a_deaf_one(name: str) -> None:
    handle = getattr(unruly, name).run()

    with working(name, interrupt_grace=GRACE, lease=timedelta(seconds=1)):
        until(lambda: RunLog.objects.filter(run_id=handle.id).exists())
        handle.cancel()
        until(lambda: handle.status() is TaskStatus.CANCELED)


def test_what_a_crashed_handler_had_started_is_ended_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNRULY_PID", str(place / "pid"))
    unruly.misbehave.run("crash and leave a child")

    work_off(concurrency=1)

    pid = int((place / "pid").read_text())
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_what_still_runs_at_the_end_of_the_grace_is_killed_and_released_uncharged() -> None:
    """W4."""
    handle = unruly.be_deaf.run()

    with working("be_deaf", shutdown_grace=GRACE):
        until(lambda: RunLog.objects.filter(run_id=handle.id).exists())

    run = TaskRun.objects.get(id=handle.id)
    assert (run.status, run.failure_count, run.lost_count) == ("queued", 0, 0)


def test_a_signal_to_all_processes_leaves_handlers_alone() -> None:
    """As systemd sends it to the whole group: only the worker decides when a handler has to go."""
    handle = unruly.talk.run()

    with working("talk", lease=timedelta(seconds=1)):
        until(lambda: RunLog.objects.filter(run_id=handle.id).exists())
        for process in handler_processes():
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)
        handle.cancel()
        until(lambda: handle.status() is TaskStatus.CANCELED)

    assert TaskRun.objects.get(id=handle.id).failure_count == 0


def test_the_processes_of_handlers_die_with_a_worker_that_is_killed() -> None:
    handle = unruly.be_deaf.run()
    worker = subprocess.Popen([sys.executable, ROOT / "manage.py", "catbird_worker"])
    try:
        until(lambda: RunLog.objects.filter(run_id=handle.id).exists())
        [process] = psutil.Process(worker.pid).children()
    finally:
        worker.kill()
        worker.wait()

    until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
    until_no_transaction_is_open()


@pytest.mark.parametrize("name", ["be_deaf", "talk", "talk_async"])
def test_a_handler_whose_claim_was_lost_is_stopped(name: str) -> None:
    """W2: another worker has taken the run; what this one does to it would be done twice."""
    handle = getattr(unruly, name).run()

    with working(name, interrupt_grace=GRACE, lease=timedelta(seconds=1)) as worker:
        until(lambda: RunLog.objects.filter(run_id=handle.id).exists())
        TaskRun.objects.filter(id=handle.id).update(delivery_token=uuid4())  # as if taken back, and claimed again

        until(worker._is_idle)

    run = TaskRun.objects.get(id=handle.id)
    assert (run.status, run.failure_count) == ("started", 0)
