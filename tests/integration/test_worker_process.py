"""`manage.py catbird_worker` as a process: it starts, works, and stops when told (W1, W4)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catbird_django import TaskHandle, run_task
from catbird_django.models import TaskRun, Worker
from catbird_django.statuses import TaskStatus
from project.demo.tasks import brew, greet, render_report
from tests.support import LONG_ENOUGH, until, until_no_transaction_is_open

ROOT = Path(__file__).parents[2]
REPORT = {"title": "Sales", "pages": 5}  # half a second
NOT_SO_SHORT_REPORT = {"title": "Sales", "pages": 30}
LONG_REPORT = {"title": "Sales", "pages": 600}

QUICK_RECOVERY = '{"LEASE": 3, "SWEEP_INTERVAL": 0.3, "POLL_INTERVAL": 0.3, "IDLE_POLL_INTERVAL": 0.3}'

AT_ONCE = 15.0  # seconds: less than the grace

StartWorker = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start_worker(database_url: str) -> Iterator[StartWorker]:
    """Start worker processes on the test database; kill what is left of them."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "DATABASE_URL": database_url, "DJANGO_SETTINGS_MODULE": "project.settings"}
        command = [sys.executable, str(ROOT / "manage.py"), "catbird_worker", "--noreload", *arguments]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, env=environment, text=True, **pipes)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
    until_no_transaction_is_open()


@pytest.fixture(autouse=True)
def _tasks_of_the_demo(_only_the_tasks_of_the_test: None) -> None:
    from catbird_django.definitions.registry import registry

    for demo_task in (greet, brew, render_report):
        registry.add(demo_task.definition)


def is_started(handle: TaskHandle[Any]) -> bool:
    return handle.status() is TaskStatus.STARTED


def test_a_worker_process_runs_what_is_queued_while_it_sleeps(start_worker: StartWorker) -> None:
    process = start_worker()
    until(lambda: Worker.objects.filter(sleeping_since__isnull=False).exists())

    greeted, brewed = greet.run({"name": "Ada"}), brew.run({"kind": "green", "seconds": 0.01})

    assert greeted.wait(timeout=LONG_ENOUGH).text == "Hello, Ada!"
    assert brewed.wait(timeout=LONG_ENOUGH).contents == "green tea"
    assert process.poll() is None


def test_until_idle_ends_when_everything_is_done(start_worker: StartWorker) -> None:
    handles = greet.run_many([{"name": str(number)} for number in range(300)])

    process = start_worker("--until-idle")

    assert process.wait(timeout=LONG_ENOUGH) == 0
    assert {handle.status() for handle in handles} == {TaskStatus.COMPLETED}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_stops_at_once_when_told(start_worker: StartWorker, number: int) -> None:
    process = start_worker()
    until(lambda: Worker.objects.filter(sleeping_since__isnull=False).exists())

    process.send_signal(number)

    assert process.wait(timeout=LONG_ENOUGH) == 0
    assert Worker.objects.get().stopped_at is not None


def test_a_stopping_worker_finishes_what_runs_and_gives_back_what_waits(start_worker: StartWorker) -> None:
    process = start_worker("--concurrency", "1")
    running = render_report.run(NOT_SO_SHORT_REPORT)
    until(lambda: is_started(running))
    waiting = render_report.run(REPORT)

    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=LONG_ENOUGH) == 0
    assert running.status() is TaskStatus.COMPLETED
    assert waiting.status() is TaskStatus.QUEUED
    assert not TaskRun.objects.started().exists()


def test_a_second_signal_stops_at_once(start_worker: StartWorker) -> None:
    process = start_worker()
    running = render_report.run(LONG_REPORT)
    until(lambda: is_started(running))

    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)  # two of one number at the same moment are one

    assert process.wait(timeout=AT_ONCE) in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert is_started(running)


def test_a_handler_that_outlives_the_grace_is_released_uncharged(
    start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W4: exit 0, and neither a failure nor a loss is counted."""
    monkeypatch.setenv("CATBIRD", '{"SHUTDOWN_GRACE": 0.5}')
    process = start_worker()
    running = run_task("render_report", LONG_REPORT)
    until(lambda: is_started(running))

    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=LONG_ENOUGH) == 0
    run = TaskRun.objects.get(id=running.id)
    assert (run.status, run.failure_count, run.lost_count) == ("queued", 0, 0)


def test_a_lease_is_kept_while_a_handler_runs_longer_than_it(
    start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W2."""
    monkeypatch.setenv("CATBIRD", '{"LEASE": 3}')
    start_worker()
    running = render_report.run({"title": "Sales", "pages": 40})
    until(lambda: is_started(running))
    first_lease = TaskRun.objects.get(id=running.id).lease_until

    until(lambda: (TaskRun.objects.get(id=running.id).lease_until or first_lease) > first_lease)

    assert len(running.wait(timeout=LONG_ENOUGH).pages) == 40
    assert TaskRun.objects.get(id=running.id).delivery_count == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--concurrency", "0"], "--concurrency must be at least 1"),
        (["--processes", "0"], "--processes must be at least 1"),
        (["--max-runs", "0"], "--max-runs must be at least 1"),
        (["--max-memory", "-1"], "--max-memory must be at least 1"),
        (["--tasks", "nobody"], "no task named 'nobody' has a handler here"),
    ],
)
def test_bad_arguments_end_in_one_line(start_worker: StartWorker, arguments: list[str], complaint: str) -> None:
    process = start_worker(*arguments)

    output, _ = process.communicate(timeout=LONG_ENOUGH)

    assert process.returncode == 1
    assert complaint in output
    assert "Traceback" not in output


def test_what_a_killed_worker_held_is_run_by_another(
    start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W3: back within lease + sweep + poll, counted as a lost delivery."""
    monkeypatch.setenv("CATBIRD", QUICK_RECOVERY)
    victim = start_worker()
    running = render_report.run(REPORT)
    until(lambda: is_started(running))
    victim.kill()
    victim.wait()

    start_worker()

    assert running.wait(timeout=LONG_ENOUGH).title == "Sales"
    run = TaskRun.objects.get(id=running.id)
    assert (run.delivery_count, run.lost_count, run.failure_count) == (2, 1, 0)


def test_a_worker_that_was_frozen_past_its_lease_changes_nothing_when_it_wakes(
    start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R5: its result comes back stale."""
    monkeypatch.setenv("CATBIRD", QUICK_RECOVERY)
    zombie = start_worker()
    running = render_report.run(NOT_SO_SHORT_REPORT)
    until(lambda: is_started(running))
    zombie.send_signal(signal.SIGSTOP)
    start_worker()
    running.wait(timeout=LONG_ENOUGH)
    finished_at = TaskRun.objects.get(id=running.id).finished_at

    zombie.send_signal(signal.SIGCONT)
    zombie.send_signal(signal.SIGTERM)

    assert zombie.wait(timeout=LONG_ENOUGH) == 0
    output, _ = zombie.communicate()
    assert "claim was lost" in output
    run = TaskRun.objects.get(id=running.id)
    assert (run.finished_at, run.delivery_count, run.status) == (finished_at, 2, "completed")
