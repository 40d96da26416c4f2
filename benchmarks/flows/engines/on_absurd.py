"""absurd: the steps of a flow as checkpoints of one task, or the items as child tasks of a second queue.

A task may not wait for tasks of its own queue, so with children a worker process serves both queues, on two threads.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import psycopg
from absurd_sdk import Absurd, AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

from benchmarks.engines.exchange import dsn, option
from benchmarks.engines.probe import hit
from benchmarks.flows.engines.adapter import Adapter, batches

QUEUE = "bench"
CHILDREN = "children"
UNNUMBERED = -1


def count(number: int) -> int:
    hit(UNNUMBERED)
    return number


async def async_count(number: int) -> int:
    hit(UNNUMBERED)
    return number


def linear(items: int, ctx: Any) -> int:
    first = ctx.step("first", lambda: count(items))
    second = ctx.step("second", lambda: count(first))
    return int(ctx.step("third", lambda: count(second)))


def diamond(items: int, ctx: Any) -> int:
    top = ctx.step("top", lambda: count(items))
    left = ctx.step("left", lambda: count(top))
    right = ctx.step("right", lambda: count(top))
    return int(ctx.step("bottom", lambda: count(left + right)))


def fanout(items: int, ctx: Any) -> int:
    numbers = range(ctx.step("numbers", lambda: count(items)))
    results = [ctx.step("each", lambda number=number: count(number)) for number in numbers]
    return int(ctx.step("total", lambda: count(len(results))))


async def async_linear(items: int, ctx: Any) -> int:
    first = await ctx.step("first", lambda: async_count(items))
    second = await ctx.step("second", lambda: async_count(first))
    return int(await ctx.step("third", lambda: async_count(second)))


async def async_diamond(items: int, ctx: Any) -> int:
    top = await ctx.step("top", lambda: async_count(items))
    left, right = await asyncio.gather(
        ctx.step("left", lambda: async_count(top)), ctx.step("right", lambda: async_count(top))
    )
    return int(await ctx.step("bottom", lambda: async_count(left + right)))


async def async_fanout(items: int, ctx: Any) -> int:
    numbers = range(await ctx.step("numbers", lambda: async_count(items)))
    results = await asyncio.gather(*[ctx.step("each", lambda number=n: async_count(number)) for n in numbers])
    return int(await ctx.step("total", lambda: async_count(len(results))))


def fanout_of(app: Absurd) -> Any:
    """A fan-out that spawns its children in one step, and waits for each in a step of its own, or for all in one."""

    def spawn(numbers: range) -> list[str]:
        return [str(app.spawn("child", number, queue=CHILDREN)["task_id"]) for number in numbers]

    def wait_for(task: str) -> Any:
        return app.await_task_result(task, queue_name=CHILDREN).result

    def fanout_of_children(items: int, ctx: Any) -> int:
        numbers = range(ctx.step("numbers", lambda: count(items)))
        tasks = ctx.step("spawn", lambda: spawn(numbers))
        if option("waits", "each") == "each":
            results = [ctx.await_task_result(task, queue_name=CHILDREN).result for task in tasks]
        else:
            results = ctx.step("wait", lambda: [wait_for(task) for task in tasks])
        return int(ctx.step("total", lambda: count(len(results))))

    return fanout_of_children


def child(number: int, _ctx: Any) -> int:
    return count(number)


def setup() -> None:
    with psycopg.connect(dsn(), autocommit=True) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL)
    app = Absurd(dsn())
    app.create_queue(QUEUE)
    app.create_queue(CHILDREN)
    app.close()


def worker() -> None:
    poll, concurrency = option("poll", 0.02), option("concurrency", 1)
    match option("handlers", "sync"):
        case "async":
            asyncio.run(work_on_the_loop(poll, concurrency))
        case "children":
            threading.Thread(target=work_on_children, args=(poll,), daemon=True).start()
            app = Absurd(dsn(), queue_name=QUEUE)
            app.register_task("fanout")(fanout_of(app))
            app.start_worker(concurrency=concurrency, poll_interval=poll)
        case _:
            app = Absurd(dsn(), queue_name=QUEUE)
            for task in (linear, diamond, fanout):
                app.register_task(task.__name__)(task)
            app.start_worker(concurrency=concurrency, batch_size=option("batch", 100), poll_interval=poll)


def work_on_children(poll: float) -> None:
    app = Absurd(dsn(), queue_name=CHILDREN)
    app.register_task("child")(child)
    app.start_worker(batch_size=option("batch", 100), poll_interval=poll)


async def work_on_the_loop(poll: float, concurrency: int) -> None:
    app = AsyncAbsurd(dsn(), queue_name=QUEUE)
    for task in (async_linear, async_diamond, async_fanout):
        app.register_task(task.__name__.removeprefix("async_"))(task)
    await app.start_worker(concurrency=concurrency, batch_size=option("batch", 100), poll_interval=poll)


def start(shape: str, flows: int, items: int) -> None:
    """Spawn one task per run, in one transaction per thousand; there is no call for many."""
    name = "fanout" if shape == "map" else shape
    with psycopg.connect(dsn(), autocommit=True) as connection:
        app = Absurd(connection, queue_name=QUEUE)
        for size in batches(flows):
            with connection.transaction():
                for _ in range(size):
                    app.spawn(name, items, queue=QUEUE)


if __name__ == "__main__":
    Adapter(setup, worker, start).main()
