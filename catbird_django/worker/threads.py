"""Runs sync handlers on a fixed number of threads."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

from django.db import connections

from catbird_django.engine.tasks import TaskClaim
from catbird_django.worker.outcome import Outcome, failure


class ThreadRunner:
    """Takes claims, runs each on one of its threads, and gives exactly one outcome for each."""

    def __init__(self, slots: int, *, run: Callable[[TaskClaim], Outcome], finish: Callable[[Outcome], None]) -> None:
        self._run = run
        self._finish = finish
        self._waiting: queue.SimpleQueue[TaskClaim | None] = queue.SimpleQueue()  # None: no more to come
        self._threads = [
            threading.Thread(target=self._work, name=f"catbird-handler-{number}", daemon=True)
            for number in range(1, slots + 1)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def is_alive(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def submit(self, claims: Sequence[TaskClaim]) -> None:
        for claim in claims:
            self._waiting.put(claim)

    def take_back(self) -> list[TaskClaim]:
        """Take back the claims that no thread has begun."""
        taken: list[TaskClaim] = []
        while True:
            try:
                claim = self._waiting.get_nowait()
            except queue.Empty:
                return taken
            if claim is not None:
                taken.append(claim)

    def stop(self) -> None:
        """Let the threads end once they have nothing to do. Does not wait for them."""
        for _ in self._threads:
            self._waiting.put(None)

    def _work(self) -> None:
        try:
            while (claim := self._waiting.get()) is not None:
                self._finish(self._outcome_of(claim))
        finally:
            connections.close_all()

    def _outcome_of(self, claim: TaskClaim) -> Outcome:
        try:
            return self._run(claim)
        except BaseException as error:  # noqa: BLE001 - even our own mistake must not leave a claim without an outcome
            return failure(claim, error)
