"""The few commands that each engine answers, whatever it is:

    setup              make the tables in an empty database
    worker             work until terminated
    bulk N             enqueue N jobs the fastest documented way, at most 1000 at a time
    single N           enqueue N jobs one by one, each committed
    pickup N GAP       enqueue N numbered jobs with pauses, for a worker that idles
    documents N BYTES  enqueue N JSON documents of that size in bulk, where the engine takes any
    feed N AHEAD       keep AHEAD jobs waiting until terminated; N are there already
    produce SECONDS    enqueue jobs one by one for so long, beginning when all others do

All but `worker` and `feed` print one line of JSON. The environment says where: BENCH_DSN and BENCH_OPTIONS (JSON).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.engines.exchange import say
from benchmarks.engines.probe import DIRECTORY, read_hits
from benchmarks.tasks.engines.documents import document

UNNUMBERED = -1
BATCH = 1000
GLANCE = 0.002  # seconds
# Files in the directory of the probes.
READY, GO, DRY = "ready", "go", "dry"


@dataclass(frozen=True)
class Enqueue:
    """How an engine takes jobs: one, with its number; many, by how many; documents, in batches."""

    one: Callable[[int], Any]
    many: Callable[[int], Any]
    documents: Callable[[list[dict[str, Any]]], Any] | None = None
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


def batches(count: int) -> list[int]:
    """The sizes of the batches that make up so many jobs."""
    return [min(BATCH, count - done) for done in range(0, count, BATCH)]


async def answer(command: str, numbers: list[str], enqueue: Enqueue) -> None:
    if command not in COMMANDS:
        sys.exit(f"no command {command!r}")
    await COMMANDS[command](enqueue, *map(float, numbers))


async def _bulk(enqueue: Enqueue, count: float) -> None:
    started = time.perf_counter()
    await enqueue.many(int(count))
    say({"jobs": count, "seconds": time.perf_counter() - started})


async def _single(enqueue: Enqueue, count: float) -> None:
    await enqueue.one(UNNUMBERED)  # connects
    started = time.perf_counter()
    for _ in range(int(count)):
        await enqueue.one(UNNUMBERED)
    say({"jobs": count, "seconds": time.perf_counter() - started})


async def _pickup(enqueue: Enqueue, count: float, gap: float) -> None:
    await enqueue.one(UNNUMBERED)
    await enqueue.sleep(1)
    committed = []
    for number in range(int(count)):
        await enqueue.sleep(gap)
        await enqueue.one(number)
        committed.append(time.time())
    say({"committed": committed})


async def _documents(enqueue: Enqueue, count: float, size: float) -> None:
    if enqueue.documents is None:
        sys.exit("this engine takes no documents here")
    await enqueue.one(UNNUMBERED)  # connects
    prepared = [document(number, int(size)) for number in range(int(count))]
    started = time.perf_counter()
    for done in range(0, len(prepared), BATCH):
        await enqueue.documents(prepared[done : done + BATCH])
    say({"jobs": count, "seconds": time.perf_counter() - started})


async def _feed(enqueue: Enqueue, sent: float, ahead: float) -> None:
    directory = Path(os.environ[DIRECTORY])
    while True:
        waiting = sent - read_hits(directory).calls
        if waiting <= 0:
            with (directory / DRY).open("ab") as dry:
                dry.write(b".")
        if waiting < ahead:
            await enqueue.many(BATCH)
            sent += BATCH
        else:
            await enqueue.sleep(GLANCE)


async def _produce(enqueue: Enqueue, seconds: float) -> None:
    directory = Path(os.environ[DIRECTORY])
    await enqueue.one(UNNUMBERED)  # connects
    (directory / f"{READY}.{os.getpid()}").touch()
    while not (directory / GO).exists():
        await enqueue.sleep(GLANCE)
    count, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds:
        await enqueue.one(UNNUMBERED)
        count += 1
    say({"jobs": count, "seconds": passed})


COMMANDS: dict[str, Callable[..., Awaitable[None]]] = {
    "bulk": _bulk,
    "single": _single,
    "pickup": _pickup,
    "documents": _documents,
    "feed": _feed,
    "produce": _produce,
}


def _as_async(enqueue: Enqueue) -> Enqueue:
    async def one(number: int) -> None:
        enqueue.one(number)

    async def many(count: int) -> None:
        enqueue.many(count)

    async def documents(batch: list[dict[str, Any]]) -> None:
        assert enqueue.documents is not None
        enqueue.documents(batch)

    async def sleep(seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop to hold up

    return Enqueue(one, many, documents if enqueue.documents else None, sleep)


def _run_without_loop(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits: Django refuses sync calls where a loop runs."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("a sync adapter has waited for something")
