"""Small things that many tests say: declare tasks, queue runs, claim them, run a worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
from django.db import connection, connections

from catbird_django.conf import get_settings
from catbird_django.definitions.registry import registry
from catbird_django.engine import tasks, workers
from catbird_django.engine.tasks import Lane, LaneRequest, TaskClaim, TaskRow
from catbird_django.worker.worker import Worker, WorkerOptions

USING = "default"
LEASE = timedelta(seconds=30)
LONG_ENOUGH = 90.0
"""Seconds that something may take where only that it happens counts, also on a machine that has much else to do."""


def register(*names: str, queue: str = "default") -> list[int]:
    """Enter tasks without handlers; return their ids."""
    rows = [
        TaskRow(
            name=name,
            queue=queue,
            description="",
            handler="",
            max_retries=0,
            max_lost=5,
            input_schema={},
            output_schema={},
            fingerprint="1",
        )
        for name in names
    ]
    return tasks.register_tasks(rows, using=USING)


def register_worker(*, queues: Sequence[str] | None = None) -> int:
    row = workers.WorkerRow(boot_id=uuid4(), host="here", pid=1, version="1", queues=queues, handlers=[], slots=1)
    return workers.register_worker(row, using=USING)


def queue_runs(name: str, count: int, **options: Any) -> list[int]:
    """Queue runs with the inputs 0, 1, 2…; return their ids."""
    inputs = [str(number) for number in range(count)]
    return [answer.run_id for answer in tasks.run_tasks(name, inputs, using=USING, **options) if answer.run_id]


def claim(*lanes: tuple[int, int], worker_id: int, limit: int = 10, low_id: int = 0) -> list[TaskClaim]:
    """Claim from lanes, given as (task id, priority), of the default queue; oldest first."""
    requests = [LaneRequest(Lane("default", task_id, priority), low_id, limit) for task_id, priority in lanes]
    claims = tasks.claim_tasks(requests, worker_id=worker_id, lease=LEASE, using=USING)
    return sorted(claims, key=lambda claimed: claimed.run_id)


@contextmanager
def second_session() -> Iterator[psycopg.Connection[Any]]:
    """Another connection to the test database, with a transaction of its own."""
    parameters = connection.get_connection_params()
    wanted = {key: parameters[key] for key in ("dbname", "user", "password", "host", "port") if parameters.get(key)}
    with psycopg.connect(**wanted) as session:
        yield session
        session.rollback()


def work_off(
    *names: str,
    concurrency: int = 4,
    queues: Sequence[str] | None = None,
    flows: Sequence[str] | None = None,
    **settings: Any,
) -> Worker:
    """Run a real worker in this process until nothing is left to do."""
    options = WorkerOptions(concurrency=concurrency, tasks=names or None, flows=flows, queues=queues, until_idle=True)
    worker = Worker(options, replace(get_settings(), **settings), registry)
    worker.enter()
    worker.run()
    return worker


@contextmanager
def working(*names: str, concurrency: int = 1, **settings: Any) -> Iterator[Worker]:
    """A real worker on threads of this process, for these tasks or everything, stopped at the end of the block."""
    options = WorkerOptions(concurrency=concurrency, tasks=names or None)
    worker = Worker(options, replace(get_settings(), **settings), registry)
    worker.enter()
    thread = threading.Thread(target=lambda: (worker.run(), connections.close_all()))
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(timeout=20)
        assert not thread.is_alive()


def until(condition: Callable[[], Any], *, seconds: float = LONG_ENOUGH) -> None:
    """Wait for something that other threads or processes do."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def until_no_transaction_is_open() -> None:
    """Wait until the server has ended what killed processes had begun: emptying the tables meanwhile may deadlock."""
    others = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
        " AND backend_type = 'client backend'"
    )
    with second_session() as session:
        session.autocommit = True
        until(lambda: session.execute(others).fetchone() == (0,))


def until_nobody_listens() -> None:
    """Wait until callers of earlier tests have let go: their listener knows nothing of a database that was emptied."""
    until(lambda: not any(thread.name == "catbird-waiting" for thread in threading.enumerate()))


def is_waiting_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(cursor.fetchone()[0])
