"""chancy: its async executor, polling eagerly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chancy import Chancy, Queue, Worker, job

from benchmarks.engines.exchange import dsn, option
from benchmarks.engines.probe import hit
from benchmarks.tasks.engines.adapter import UNNUMBERED, AsyncAdapter, Enqueue, batches


@job(queue="default")
async def noop(number: int) -> None:
    hit(number)


async def setup() -> None:
    queue = Queue(
        "default",
        executor=Chancy.Executor.Async,
        concurrency=option("concurrency", 100),
        polling_interval=5,
        eager_polling=True,
    )
    async with Chancy(dsn()) as chancy:
        await chancy.migrate()
        await chancy.declare(queue, upsert=True)


async def worker() -> None:
    async with Chancy(dsn()) as chancy, Worker(chancy) as running:
        await running.wait_for_shutdown()


@asynccontextmanager
async def enqueuer() -> AsyncIterator[Enqueue]:
    # By the module's real name: the worker imports the function by the path that is stored here.
    from benchmarks.tasks.engines.on_chancy import noop

    async with Chancy(dsn()) as chancy:

        async def one(number: int) -> None:
            await chancy.push(noop.job.with_kwargs(number=number))

        async def many(count: int) -> None:
            for size in batches(count):
                async for _ in chancy.push_many([noop.job.with_kwargs(number=UNNUMBERED)] * size):
                    pass

        yield Enqueue(one, many)


if __name__ == "__main__":
    AsyncAdapter(setup, worker, enqueuer).main()
