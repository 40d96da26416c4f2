"""The few commands that each engine answers, whatever it is:

    setup              make the tables in an empty database
    worker             work until terminated
    bulk N             enqueue N jobs the fastest documented way, at most 1000 at a time
    single N           enqueue N jobs one by one, each committed
    pickup N GAP       enqueue N numbered jobs with pauses, for a worker that idles

All but `worker` print one line of JSON. The environment says where: BENCH_DSN and BENCH_OPTIONS (JSON).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any

UNNUMBERED = -1
BATCH = 1000


@dataclass(frozen=True)
class Enqueue:
    """How an engine takes jobs: one, with its number; many, by how many."""

    one: Callable[[int], Any]
    many: Callable[[int], Any]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True)
class Adapter:
    """An engine with sync calls."""

    setup: Callable[[], None]
    worker: Callable[[], None]
    enqueuer: Callable[[], AbstractContextManager[Enqueue]]

    def main(self) -> None:
        command, *numbers = sys.argv[1:]
        if command == "setup":
            self.setup()
            say({})
        elif command == "worker":
            self.worker()
        else:
            with self.enqueuer() as enqueue:
                _run_without_loop(answer(command, numbers, _as_async(enqueue)))


@dataclass(frozen=True)
class AsyncAdapter:
    """An engine with async calls."""

    setup: Callable[[], Awaitable[None]]
    worker: Callable[[], Awaitable[None]]
    enqueuer: Callable[[], AbstractAsyncContextManager[Enqueue]]

    def main(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        command, *numbers = sys.argv[1:]
        if command == "setup":
            await self.setup()
            say({})
        elif command == "worker":
            await self.worker()
        else:
            async with self.enqueuer() as enqueue:
                await answer(command, numbers, enqueue)


def dsn() -> str:
    """The database to use, as a URL."""
    return os.environ["BENCH_DSN"]


def option(name: str, default: Any) -> Any:
    """A setting of this contender."""
    return json.loads(os.environ.get("BENCH_OPTIONS", "{}")).get(name, default)


def say(answer: dict[str, Any]) -> None:
    print(f"ANSWER {json.dumps(answer)}", flush=True)


def batches(count: int) -> list[int]:
    """The sizes of the batches that make up so many jobs."""
    return [min(BATCH, count - done) for done in range(0, count, BATCH)]


async def answer(command: str, numbers: list[str], enqueue: Enqueue) -> None:
    if command == "bulk":
        await _bulk(int(numbers[0]), enqueue)
    elif command == "single":
        await _single(int(numbers[0]), enqueue)
    elif command == "pickup":
        await _pickup(int(numbers[0]), float(numbers[1]), enqueue)
    else:
        sys.exit(f"no command {command!r}")


async def _bulk(count: int, enqueue: Enqueue) -> None:
    started = time.perf_counter()
    await enqueue.many(count)
    say({"jobs": count, "seconds": time.perf_counter() - started})


async def _single(count: int, enqueue: Enqueue) -> None:
    await enqueue.one(UNNUMBERED)  # connects
    started = time.perf_counter()
    for _ in range(count):
        await enqueue.one(UNNUMBERED)
    say({"jobs": count, "seconds": time.perf_counter() - started})


async def _pickup(count: int, gap: float, enqueue: Enqueue) -> None:
    await enqueue.one(UNNUMBERED)
    await enqueue.sleep(1)
    committed = []
    for number in range(count):
        await enqueue.sleep(gap)
        await enqueue.one(number)
        committed.append(time.time())
    say({"committed": committed})


def _as_async(enqueue: Enqueue) -> Enqueue:
    async def one(number: int) -> None:
        enqueue.one(number)

    async def many(count: int) -> None:
        enqueue.many(count)

    async def sleep(seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop to hold up

    return Enqueue(one, many, sleep)


def _run_without_loop(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits: Django refuses sync calls where a loop runs."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("a sync adapter has waited for something")
