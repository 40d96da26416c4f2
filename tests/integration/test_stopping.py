"""W4: a worker that is told to stop exits with 0 within the grace and five seconds, whatever else is going on."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connection

from catbird_django.definitions.registry import registry
from catbird_django.models import TaskRun, Worker
from catbird_django.statuses import TaskStatus
from tests.integration.worker_processes import StartWorker, worker_processes
from tests.proxy import Proxy, server_address
from tests.support import LONG_ENOUGH, is_waiting_for_a_lock, second_session, until
from tests.unruly import tasks as unruly

pytestmark = pytest.mark.django_db(transaction=True)

GRACE = 2
SETTINGS = f'{{"SHUTDOWN_GRACE": {GRACE}}}'
AT_ONCE = 10.0
"""Seconds: long before anything that a worker waits for when it does not stop at once."""


@pytest.fixture
def start_worker(database_url: str, _only_the_tasks_of_the_test: None) -> Iterator[StartWorker]:
    for declared in (unruly.take_time, unruly.be_deaf):
        registry.add(declared.definition)
    with worker_processes(database_url) as start:
        yield start


def address_through(proxy: Proxy) -> str:
    parameters = connection.get_connection_params()
    return f"postgresql://{parameters['user']}@127.0.0.1:{proxy.port}/{parameters['dbname']}"


def seconds_to_stop(process: Any, *signals: int) -> float:
    """Signal a process; return how long it took to exit with 0."""
    began = time.monotonic()
    for number in signals:
        process.send_signal(number)
    assert process.wait(timeout=LONG_ENOUGH) == 0
    return time.monotonic() - began


def test_an_idle_worker_stops_at_once(start_worker: StartWorker) -> None:
    process = start_worker(CATBIRD='{"SHUTDOWN_GRACE": 60}')
    until(lambda: Worker.objects.exclude(sleeping_since=None).exists())

    assert seconds_to_stop(process, signal.SIGTERM) < AT_ONCE


def test_a_worker_that_is_stopped_while_it_enters_itself_leaves_nothing_behind(start_worker: StartWorker) -> None:
    with second_session() as session:
        session.execute("LOCK TABLE cb_workers IN EXCLUSIVE MODE")  # nobody can enter
        process = start_worker(CATBIRD=SETTINGS)
        until(is_waiting_for_a_lock)
        process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=LONG_ENOUGH) == 0
    assert not Worker.objects.filter(stopped_at=None).exists()


def has_been_called(function: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE %s",
            [f"%{function}%"],
        )
        return bool(cursor.fetchone()[0])


def test_a_worker_whose_row_is_locked_for_a_moment_marks_itself_as_stopped_all_the_same(
    start_worker: StartWorker,
) -> None:
    """A producer that wakes it, say, or a thread of its own, has just written the row."""
    process = start_worker(CATBIRD=SETTINGS)
    until(lambda: Worker.objects.exclude(sleeping_since=None).exists())

    with second_session() as session:
        session.execute("SELECT id FROM cb_workers FOR UPDATE")
        process.send_signal(signal.SIGTERM)
        until(lambda: has_been_called("cb_stop_worker"))

    assert process.wait(timeout=LONG_ENOUGH) == 0
    assert not Worker.objects.filter(stopped_at=None).exists()


@pytest.mark.parametrize("name", ["take_time", "be_deaf"])
def test_a_busy_worker_releases_what_does_not_end_in_time(start_worker: StartWorker, name: str) -> None:
    """On a thread, and in a process of its own."""
    process = start_worker(CATBIRD=SETTINGS)
    running = unruly.take_time.run(60) if name == "take_time" else unruly.be_deaf.run()
    until(lambda: running.status() is TaskStatus.STARTED)

    assert seconds_to_stop(process, signal.SIGTERM) < GRACE + 5

    run = TaskRun.objects.get(id=running.id)
    assert (run.status, run.failure_count, run.lost_count) == ("queued", 0, 0)


@pytest.mark.parametrize("trouble", ["gone", "silent"])
@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_without_its_database_stops_in_time(start_worker: StartWorker, trouble: str, busy: bool) -> None:
    with ExitStack() as network:
        proxy = network.enter_context(Proxy(server_address()))
        process = start_worker(DATABASE_URL=address_through(proxy), CATBIRD=SETTINGS)
        until(lambda: Worker.objects.exclude(sleeping_since=None).exists())
        if busy:
            running = unruly.take_time.run(60)
            until(lambda: running.status() is TaskStatus.STARTED)
        if trouble == "silent":
            proxy.freeze()
        else:
            network.close()

        assert seconds_to_stop(process, signal.SIGTERM) < GRACE + 5


def test_a_worker_that_is_about_to_start_just_leaves(start_worker: StartWorker) -> None:
    """Its database takes the connection, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        process = start_worker(DATABASE_URL=f"postgresql://nobody@127.0.0.1:{server.getsockname()[1]}/nothing")
        client, _ = server.accept()
        with client:
            assert seconds_to_stop(process, signal.SIGTERM) < AT_ONCE


def test_a_drained_worker_exits_with_0_and_a_stop_ends_the_draining(start_worker: StartWorker) -> None:
    """W8."""
    process = start_worker(CATBIRD=SETTINGS)
    running = unruly.take_time.run(60)
    until(lambda: running.status() is TaskStatus.STARTED)
    process.send_signal(signal.SIGUSR1)
    until(lambda: Worker.objects.exclude(draining_since=None).exists())

    assert seconds_to_stop(process, signal.SIGTERM) < GRACE + 5

    assert TaskRun.objects.get(id=running.id).status == "queued"


def test_a_worker_that_has_done_enough_says_so_by_its_exit_code(start_worker: StartWorker) -> None:
    """W8."""
    process = start_worker("--max-runs", "1", "--concurrency", "1")
    handle = unruly.take_time.run(0)

    output, _ = process.communicate(timeout=LONG_ENOUGH)

    assert process.returncode == 75
    assert "another should take its place: it has finished 1 runs" in output
    assert handle.status() is TaskStatus.COMPLETED
