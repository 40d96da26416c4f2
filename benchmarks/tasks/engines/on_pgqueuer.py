"""pgqueuer: asyncpg and uvloop, as its own documentation recommends for speed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.engines.exchange import dsn, option
from benchmarks.engines.probe import hit
from benchmarks.tasks.engines.adapter import AsyncAdapter, Enqueue, batches


async def setup() -> None:
    connection = await asyncpg.connect(dsn())
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def worker() -> None:
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(dsn())))

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        hit(int(job.payload))

    await queuer.run(batch_size=option("batch", 100), dequeue_timeout=timedelta(seconds=30))


@asynccontextmanager
async def enqueuer() -> AsyncIterator[Enqueue]:
    connection = await asyncpg.connect(dsn())
    queries = Queries(AsyncpgDriver(connection))

    async def one(number: int) -> None:
        await queries.enqueue("noop", str(number).encode())

    async def many(count: int) -> None:
        for size in batches(count):
            await queries.enqueue(["noop"] * size, [b"-1"] * size, [0] * size)

    async def documents(batch: list[dict[str, Any]]) -> None:
        payloads = [json.dumps(document).encode() for document in batch]
        await queries.enqueue(["noop"] * len(batch), payloads, [0] * len(batch))

    yield Enqueue(one, many, documents)
    await connection.close()


if __name__ == "__main__":
    uvloop.install()
    AsyncAdapter(setup, worker, enqueuer).main()
