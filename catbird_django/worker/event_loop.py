"""Runs async handlers on an event loop with a thread of its own.

A slot is a task of the loop that runs one claim after the other: making a task, a context and a thread for each of them
would take longer than a small handler. A slot is given up, and another begun, when a handler has left something behind
in it that is no business of the next: a context variable, or a cancellation.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from asgiref.sync import ThreadSensitiveContext

from catbird_django.engine.steps import AnyDelivery, Claim
from catbird_django.worker.outcome import Outcome, failure

logger = logging.getLogger("catbird.worker")

LONGEST_TURN = 0.002  # seconds that a slot keeps the loop while its handlers wait for nothing

RunAsync = Callable[[Claim, ThreadSensitiveContext], Awaitable[Outcome]]


class LoopRunner:
    """Takes claims, runs some of them at the same time, and gives exactly one outcome for each."""

    def __init__(self, slots: int, *, run: RunAsync, finish: Callable[[Outcome], None]) -> None:
        self._run = run
        self._finish = finish
        self._waiting: deque[Claim] = deque()
        self._free = slots
        # The loop keeps only weak references: a task nobody holds may vanish while it runs.
        self._slots: set[asyncio.Task[None]] = set()
        self._running: dict[AnyDelivery, asyncio.Task[None]] = {}
        self._stopping = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="catbird-loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def submit(self, claims: Sequence[Claim]) -> None:
        self._waiting.extend(claims)
        self._loop.call_soon_threadsafe(self._start_slots)

    def take_back(self) -> list[Claim]:
        """Take back the claims that have not begun."""
        taken = []
        while (claim := self._next()) is not None:
            taken.append(claim)
        return taken

    def cancel(self, delivery: AnyDelivery) -> None:
        """Cancel a handler, if it is one of ours and still runs."""
        self._loop.call_soon_threadsafe(self._cancel, delivery)

    def _cancel(self, delivery: AnyDelivery) -> None:
        if delivery in self._running:
            self._running[delivery].cancel()

    def stop(self) -> None:
        """Stop the loop. Does not wait for handlers."""
        self._stopping = True
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run_loop(self) -> None:
        # asyncio lets SystemExit and KeyboardInterrupt of a handler's own tasks out, and a handler may stop the loop:
        # neither is a reason to leave the other handlers standing.
        while not self._stopping:
            try:
                self._loop.run_forever()
            except BaseException:
                logger.exception("a handler broke out of the event loop, which goes on")

    def _next(self) -> Claim | None:
        try:
            return self._waiting.popleft()
        except IndexError:  # nothing there, or another thread was faster
            return None

    def _start_slots(self) -> None:
        for _ in range(min(self._free, len(self._waiting))):
            self._free -= 1
            self._start_slot()

    def _start_slot(self) -> None:
        slot = self._loop.create_task(self._work(), context=contextvars.Context())
        self._slots.add(slot)
        slot.add_done_callback(self._slots.discard)

    async def _work(self) -> None:
        """Run claims as long as there are any; then, or when it is no longer as it was, the slot is free again."""
        slot = cast("asyncio.Task[None]", asyncio.current_task())
        # One for the slot: otherwise all handlers would share one thread for sync_to_async, and with it one database
        # connection (W7).
        async with ThreadSensitiveContext() as threads:
            clean = contextvars.copy_context()
            turn_ends = time.monotonic() + LONGEST_TURN
            while (claim := self._next()) is not None:
                await self._run_one(claim, slot, threads)
                if slot.cancelling() or contextvars.copy_context() != clean:
                    break
                if time.monotonic() > turn_ends:
                    await asyncio.sleep(0)
                    turn_ends = time.monotonic() + LONGEST_TURN
        self._free += 1
        self._start_slots()

    async def _run_one(self, claim: Claim, slot: asyncio.Task[None], threads: ThreadSensitiveContext) -> None:
        self._running[claim.delivery] = slot
        try:
            outcome = await self._run(claim, threads)
        except BaseException as error:  # noqa: BLE001 - even our own mistake must not leave a claim without an outcome
            outcome = failure(claim, error)
        del self._running[claim.delivery]
        self._finish(outcome)
