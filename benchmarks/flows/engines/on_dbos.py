"""DBOS: the flows as workflows of a queue, with sync steps, with async ones, or with a queued child for each item."""

from __future__ import annotations

import asyncio
import os
import threading

import sqlalchemy
from dbos import DBOS, DBOSClient

from benchmarks.engines.exchange import dsn, option
from benchmarks.engines.probe import hit
from benchmarks.flows.engines.adapter import Adapter, batches

VERSION = "1"
QUEUE = "bench"
CHILDREN = "children"
UNNUMBERED = -1
RESULT_POLL = 0.02  # seconds


@DBOS.step()
def step(number: int) -> int:
    hit(UNNUMBERED)
    return number


@DBOS.workflow(name="sync_linear")
def linear(items: int) -> int:
    return step(step(step(items)))


@DBOS.workflow(name="sync_diamond")
def diamond(items: int) -> int:
    top = step(items)
    return step(step(top) + step(top))


@DBOS.workflow(name="sync_fanout")
def fanout(items: int) -> int:
    return step(len([step(number) for number in range(step(items))]))


@DBOS.step()
async def async_step(number: int) -> int:
    hit(UNNUMBERED)
    return number


@DBOS.workflow(name="async_linear")
async def async_linear(items: int) -> int:
    return await async_step(await async_step(await async_step(items)))


@DBOS.workflow(name="async_diamond")
async def async_diamond(items: int) -> int:
    top = await async_step(items)
    left, right = await asyncio.gather(async_step(top), async_step(top))
    return await async_step(left + right)


@DBOS.workflow(name="async_fanout")
async def async_fanout(items: int) -> int:
    count = await async_step(items)
    results = await asyncio.gather(*[async_step(number) for number in range(count)])
    return await async_step(len(results))


@DBOS.workflow(name="child")
def child(number: int) -> int:
    hit(UNNUMBERED)
    return number


@DBOS.workflow(name="children_fanout")
def fanout_of_children(items: int) -> int:
    handles = [DBOS.enqueue_workflow(CHILDREN, child, number) for number in range(step(items))]
    return step(len([handle.get_result(polling_interval_sec=RESULT_POLL) for handle in handles]))


def launch() -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": dsn(),
            "log_level": "ERROR",
            "application_version": VERSION,
            "executor_id": f"worker-{os.getpid()}",
            "sys_db_pool_size": option("pool", 20),
            "run_admin_server": False,
        }
    )
    DBOS.launch()
    for queue in (QUEUE, CHILDREN):
        DBOS.register_queue(
            queue,
            worker_concurrency=option("concurrency", 100),
            polling_interval_sec=option("poll", 0.05),
            on_conflict="always_update",
        )


def setup() -> None:
    launch()
    DBOS.destroy()


def worker() -> None:
    launch()
    threading.Event().wait()


def start(shape: str, flows: int, items: int) -> None:
    """Put runs on the queue, in one transaction per thousand; there is no call for many."""
    client = DBOSClient(system_database_url=dsn())
    engine = sqlalchemy.create_engine(dsn().replace("postgresql://", "postgresql+psycopg://"))
    name = f"{option('handlers', 'sync')}_{'fanout' if shape == 'map' else shape}"
    options = {"queue_name": QUEUE, "workflow_name": name, "app_version": VERSION, "application_name": "bench"}
    for size in batches(flows):
        with engine.begin() as connection:
            for _ in range(size):
                client.enqueue_in_transaction(connection, options, items)


if __name__ == "__main__":
    Adapter(setup, worker, start).main()
