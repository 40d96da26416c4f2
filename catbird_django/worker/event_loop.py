"""Runs async handlers on an event loop with a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from catbird_django.engine.tasks import Delivery, TaskClaim
from catbird_django.worker.outcome import Outcome, failure

logger = logging.getLogger("catbird.worker")


class LoopRunner:
    """Takes claims, runs each as a task of its loop, some at the same time, and gives exactly one outcome for each."""

    def __init__(
        self, slots: int, *, run: Callable[[TaskClaim], Awaitable[Outcome]], finish: Callable[[Outcome], None]
    ) -> None:
        self._run = run
        self._finish = finish
        self._waiting: deque[TaskClaim] = deque()
        self._free = slots
        self._running: dict[Delivery, asyncio.Task[None]] = {}
        self._stopping = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="catbird-loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def submit(self, claims: Sequence[TaskClaim]) -> None:
        self._waiting.extend(claims)
        self._loop.call_soon_threadsafe(self._start_waiting)

    def take_back(self) -> list[TaskClaim]:
        """Take back the claims that have not begun."""
        taken = []
        while self._waiting:
            try:
                taken.append(self._waiting.popleft())
            except IndexError:  # the loop was faster
                break
        return taken

    def cancel(self, delivery: Delivery) -> None:
        """Cancel a handler, if it is one of ours and still runs."""
        self._loop.call_soon_threadsafe(self._cancel, delivery)

    def _cancel(self, delivery: Delivery) -> None:
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

    def _start_waiting(self) -> None:
        while self._waiting and self._free:
            try:
                claim = self._waiting.popleft()
            except IndexError:  # it was taken back
                return
            self._free -= 1
            # In a context of its own: what one handler sets there is no business of the next.
            task = self._loop.create_task(self._run_one(claim), context=contextvars.Context())
            # The loop keeps only a weak reference: a task nobody holds may vanish while it runs.
            self._running[claim.delivery] = task

    async def _run_one(self, claim: TaskClaim) -> None:
        try:
            outcome = await self._run(claim)
        except BaseException as error:  # noqa: BLE001 - even our own mistake must not leave a claim without an outcome
            outcome = failure(claim, error)
        del self._running[claim.delivery]
        self._finish(outcome)
        self._free += 1
        self._start_waiting()
