"""Runs async handlers on an event loop with a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from catbird_django.engine.tasks import TaskClaim
from catbird_django.worker.outcome import Outcome


class LoopRunner:
    """Takes claims, runs each as a task of its loop, some at the same time, and hands over the outcomes."""

    def __init__(
        self, slots: int, *, run: Callable[[TaskClaim], Awaitable[Outcome]], finish: Callable[[Outcome], None]
    ) -> None:
        self._run = run
        self._finish = finish
        self._waiting: deque[TaskClaim] = deque()
        self._free = slots
        self._running: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="catbird-loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

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

    def stop(self) -> None:
        """Stop the loop. Does not wait for handlers."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _start_waiting(self) -> None:
        while self._waiting and self._free:
            try:
                claim = self._waiting.popleft()
            except IndexError:
                return
            self._free -= 1
            task = self._loop.create_task(self._run_one(claim))
            # The loop keeps only a weak reference: a task nobody holds may vanish while it runs.
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _run_one(self, claim: TaskClaim) -> None:
        try:
            self._finish(await self._run(claim))
        finally:
            self._free += 1
            self._start_waiting()
