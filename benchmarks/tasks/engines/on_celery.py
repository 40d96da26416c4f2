"""Celery on Redis, results ignored. Redis does not sync each job to disk: less is promised than by the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import redis
from celery import Celery

from benchmarks.engines.exchange import option
from benchmarks.engines.probe import hit
from benchmarks.tasks.engines.adapter import UNNUMBERED, Adapter, Enqueue

BROKER = os.environ["BENCH_REDIS"]

app = Celery("bench", broker=BROKER)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=option("prefetch", 64),
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop", ignore_result=True)
def noop(number: int) -> None:
    hit(number)


def setup() -> None:
    redis.Redis.from_url(BROKER).flushall()


def worker() -> None:
    pool = ["-P", option("pool", "solo"), "-c", "1"]
    app.worker_main(["worker", "-l", "ERROR", *pool, "--without-gossip", "--without-mingle"])


@contextmanager
def enqueuer() -> Iterator[Enqueue]:
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:

        def one(number: int) -> None:
            noop.apply_async((number,), producer=producer)

        def many(count: int) -> None:
            for _ in range(count):
                one(UNNUMBERED)

        yield Enqueue(one, many)


if __name__ == "__main__":
    Adapter(setup, worker, enqueuer).main()
