"""Runs sync handlers on a fixed number of threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from django.db import connections

from catbird_django.engine.tasks import TaskClaim
from catbird_django.worker.outcome import Outcome


class ThreadRunner:
    """Takes claims, runs each on one of its threads, and hands over the outcomes."""

    def __init__(self, slots: int, *, run: Callable[[TaskClaim], Outcome], finish: Callable[[Outcome], None]) -> None:
        self._run = run
        self._finish = finish
        self._waiting: deque[TaskClaim] = deque()
        # Threads sleep on the semaphore and take from the deque, which needs no lock of ours.
        self._available = threading.Semaphore(0)
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._work, name=f"catbird-handler-{number}", daemon=True)
            for number in range(1, slots + 1)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def submit(self, claims: Sequence[TaskClaim]) -> None:
        self._waiting.extend(claims)
        self._available.release(min(len(claims), len(self._threads)))

    def take_back(self) -> list[TaskClaim]:
        """Take back the claims that no thread has begun."""
        taken = []
        while self._waiting:
            try:
                taken.append(self._waiting.popleft())
            except IndexError:  # a thread was faster
                break
        return taken

    def stop(self) -> None:
        """Let the threads end once they have nothing to do. Does not wait for them."""
        self._stopping = True
        self._available.release(len(self._threads))

    def _work(self) -> None:
        try:
            while not self._stopping:
                self._available.acquire()
                self._run_waiting()
        finally:
            connections.close_all()

    def _run_waiting(self) -> None:
        while True:
            try:
                claim = self._waiting.popleft()
            except IndexError:
                return
            self._finish(self._run(claim))
