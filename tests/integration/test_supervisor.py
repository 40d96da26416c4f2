"""`manage.py catbird_worker --processes N`: workers are kept, replaced, and stopped together (W1, W8)."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from catbird_django.definitions.registry import registry
from catbird_django.models import TaskRun, Worker
from catbird_django.statuses import TaskStatus
from tests.integration.worker_processes import StartWorker, children_of, is_gone, worker_processes
from tests.support import LONG_ENOUGH, until
from tests.unruly import tasks as unruly

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def start_worker(database_url: str, _only_the_tasks_of_the_test: None) -> Iterator[StartWorker]:
    registry.add(unruly.take_time.definition)
    with worker_processes(database_url) as start:
        yield start


def alive() -> set[int]:
    return set(Worker.objects.filter(stopped_at=None).values_list("pid", flat=True))


def is_started(handle: Any) -> bool:
    return handle.status() is TaskStatus.STARTED


def until_started(count: int = 2) -> set[int]:
    """Wait until so many workers have entered themselves; return their pids."""
    until(lambda: len(alive()) >= count)
    return alive()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_all_workers_stop_with_the_supervisor(start_worker: StartWorker, number: int) -> None:
    supervisor = start_worker("--processes", "2", "--concurrency", "1")
    until_started()
    family = children_of(supervisor)

    supervisor.send_signal(number)

    assert supervisor.wait(timeout=LONG_ENOUGH) == 0
    assert alive() == set()
    assert all(is_gone(child) for child in family)
    assert supervisor.stdout is not None
    assert "catbird supervisor stopped." in supervisor.stdout.read()


def test_running_handlers_are_finished_and_the_rest_released_uncharged(start_worker: StartWorker) -> None:
    """W4, also when every process is signaled at once, as systemd and a terminal do."""
    supervisor = start_worker("--processes", "2", "--concurrency", "1", CATBIRD='{"SHUTDOWN_GRACE": 5}')
    until_started()
    short, long = unruly.take_time.run(1.0), unruly.take_time.run(60)
    until(lambda: is_started(short) and is_started(long))
    began = time.monotonic()

    for process in [supervisor, *children_of(supervisor)]:
        process.send_signal(signal.SIGTERM)

    assert supervisor.wait(timeout=LONG_ENOUGH) == 0
    assert time.monotonic() - began < 5 + 5
    assert short.status() is TaskStatus.COMPLETED
    run = TaskRun.objects.get(id=long.id)
    assert (run.status, run.failure_count, run.lost_count) == ("queued", 0, 0)


def test_a_second_signal_kills_them_all(start_worker: StartWorker) -> None:
    supervisor = start_worker("--processes", "1", "--concurrency", "1")
    until_started(1)
    running = unruly.take_time.run(60)
    until(lambda: is_started(running))
    family = children_of(supervisor)

    supervisor.send_signal(signal.SIGTERM)
    supervisor.send_signal(signal.SIGINT)

    assert supervisor.wait(timeout=LONG_ENOUGH) in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    until(lambda: all(is_gone(child) for child in family))
    assert is_started(running)


def test_one_that_dies_is_replaced(start_worker: StartWorker) -> None:
    supervisor = start_worker("--processes", "2", "--concurrency", "1")
    before = until_started()
    victim = next(child for child in children_of(supervisor) if child.pid in before)

    victim.kill()

    until(lambda: len(alive() - before) == 1)
    assert len(children_of(supervisor)) == 2


def test_one_that_has_done_enough_is_replaced(start_worker: StartWorker) -> None:
    """W8."""
    start_worker("--processes", "1", "--concurrency", "1", "--max-runs", "1")
    [first] = until_started(1)

    assert unruly.take_time.run(0).wait(timeout=LONG_ENOUGH) == "done"

    until(lambda: alive() and first not in alive())
    assert unruly.take_time.run(0).wait(timeout=LONG_ENOUGH) == "done"


def test_workers_that_cannot_start_are_tried_again_at_leisure(start_worker: StartWorker) -> None:
    supervisor = start_worker("--processes", "1", DATABASE_URL="postgresql://nobody@127.0.0.1:9/nothing")
    lines: list[str] = []

    assert supervisor.stdout is not None
    began = time.monotonic()
    while len(lines) < 3:
        if "the database does not answer" in (line := supervisor.stdout.readline()):
            lines.append(line)

    assert time.monotonic() - began > 0.5 + 1.0  # the pauses between three starts
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(timeout=LONG_ENOUGH) == 0


@pytest.mark.parametrize("option", ["--until-idle", "--once"])
def test_it_ends_when_its_workers_have_nothing_left_to_do(start_worker: StartWorker, option: str) -> None:
    handles = unruly.take_time.run_many([0] * 4)

    supervisor = start_worker("--processes", "2", "--concurrency", "4", option)

    assert supervisor.wait(timeout=LONG_ENOUGH) == 0
    assert {handle.status() for handle in handles} == {TaskStatus.COMPLETED}


def test_workers_stop_in_order_when_the_supervisor_is_killed(start_worker: StartWorker) -> None:
    supervisor = start_worker("--processes", "2", "--concurrency", "1")
    until_started()
    running = unruly.take_time.run(1.0)
    until(lambda: is_started(running))
    family = children_of(supervisor)

    supervisor.kill()

    until(lambda: all(is_gone(child) for child in family))
    assert running.status() is TaskStatus.COMPLETED
    assert alive() == set()


def test_a_signal_lets_all_workers_drain(start_worker: StartWorker) -> None:
    """W8: however long it takes, and nobody is replaced."""
    supervisor = start_worker("--processes", "2", "--concurrency", "1", CATBIRD='{"SHUTDOWN_GRACE": 0.1}')
    until_started()
    running = unruly.take_time.run(2.0)
    until(lambda: is_started(running))

    supervisor.send_signal(signal.SIGUSR1)

    assert supervisor.wait(timeout=LONG_ENOUGH) == 0
    assert running.status() is TaskStatus.COMPLETED
    assert Worker.objects.filter(draining_since=None).count() == 0


def test_arguments_reach_the_workers(start_worker: StartWorker) -> None:
    start_worker("--processes", "1", "--concurrency", "3", "--queues", "mail", "post", "--tasks", "take_time")
    until_started(1)

    worker = Worker.objects.get()
    assert (worker.slots, worker.queues, worker.handlers) == (3, ["mail", "post"], ["take_time"])


def test_a_refusal_comes_before_any_process(start_worker: StartWorker) -> None:
    supervisor = start_worker("--processes", "2", "--queues", "No Name")

    output, _ = supervisor.communicate(timeout=LONG_ENOUGH)
    assert supervisor.returncode == 1
    assert "is not a name" in output
