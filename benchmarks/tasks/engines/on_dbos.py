"""DBOS: a queue of workflows without steps."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy
from dbos import DBOS, DBOSClient

from benchmarks.engines.exchange import dsn, option
from benchmarks.engines.probe import hit
from benchmarks.tasks.engines.adapter import UNNUMBERED, Adapter, Enqueue, batches

VERSION = "1"
QUEUE = "bench"


@DBOS.workflow(name="noop")
def noop(number: int) -> None:
    hit(number)


def launch() -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": dsn(),
            "log_level": "ERROR",
            "application_version": VERSION,
            "executor_id": f"worker-{os.getpid()}",
            "sys_db_pool_size": 20,
            "run_admin_server": False,
        }
    )
    DBOS.launch()
    DBOS.register_queue(
        QUEUE,
        worker_concurrency=option("concurrency", 100),
        polling_interval_sec=option("poll", 0.1),
        on_conflict="always_update",
    )


def setup() -> None:
    launch()
    DBOS.destroy()


def worker() -> None:
    launch()
    threading.Event().wait()


@contextmanager
def enqueuer() -> Iterator[Enqueue]:
    client = DBOSClient(system_database_url=dsn())
    engine = sqlalchemy.create_engine(dsn().replace("postgresql://", "postgresql+psycopg://"))
    options = {"queue_name": QUEUE, "workflow_name": "noop", "app_version": VERSION, "application_name": "bench"}

    def many(count: int) -> None:
        for size in batches(count):
            with engine.begin() as connection:
                for _ in range(size):
                    client.enqueue_in_transaction(connection, options, UNNUMBERED)

    yield Enqueue(lambda number: client.enqueue(options, number), many)


if __name__ == "__main__":
    Adapter(setup, worker, enqueuer).main()
