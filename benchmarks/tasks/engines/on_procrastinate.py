"""procrastinate: async tasks, a pool as large as the concurrency."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from procrastinate import App, PsycopgConnector

from benchmarks.engines.exchange import dsn, option
from benchmarks.engines.probe import hit
from benchmarks.tasks.engines.adapter import UNNUMBERED, AsyncAdapter, Enqueue, batches

CONCURRENCY = option("concurrency", 20)

app = App(connector=PsycopgConnector(conninfo=dsn(), min_size=4, max_size=CONCURRENCY))


@app.task(queue="default")
async def noop(number: int) -> None:
    hit(number)


async def setup() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def worker() -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=CONCURRENCY)


@asynccontextmanager
async def enqueuer() -> AsyncIterator[Enqueue]:
    async def one(number: int) -> None:
        await noop.defer_async(number=number)

    async def many(count: int) -> None:
        for size in batches(count):
            await noop.batch_defer_async(*[{"number": UNNUMBERED}] * size)

    async with app.open_async():
        yield Enqueue(one, many)


if __name__ == "__main__":
    AsyncAdapter(setup, worker, enqueuer).main()
