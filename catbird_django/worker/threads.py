"""Runs sync handlers on a fixed number of threads; one that cannot be stopped is replaced."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable, Sequence

from django.db import connections

from catbird_django.engine.steps import Claim
from catbird_django.worker.outcome import Outcome, failure
from catbird_django.worker.watchdog import Abandoned

logger = logging.getLogger("catbird.worker")


class ThreadRunner:
    """Takes claims, runs each on one of its threads, and gives exactly one outcome for each.

    `run` raises Abandoned when an outcome was given without it: then its thread has been replaced, and ends.
    """

    def __init__(self, slots: int, *, run: Callable[[Claim], Outcome], finish: Callable[[Outcome], None]) -> None:
        self._numbers = itertools.count(1)
        self._run = run
        self._finish = finish
        self._waiting: queue.SimpleQueue[Claim | None] = queue.SimpleQueue()  # None: no more to come
        self._threads = [self._new_thread() for _ in range(slots)]

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._work, name=f"catbird-handler-{next(self._numbers)}", daemon=True)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def is_alive(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def replace(self, abandoned: threading.Thread) -> None:
        """Give the slot of a thread that will not come back to a new one."""
        successor = self._new_thread()
        successor.start()
        self._threads = [successor if thread is abandoned else thread for thread in self._threads]

    def submit(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._waiting.put(claim)

    def take_back(self) -> list[Claim]:
        """Take back the claims that no thread has begun."""
        taken: list[Claim] = []
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
        except Abandoned:
            logger.warning("an abandoned handler has ended after all")
        finally:
            connections.close_all()

    def _outcome_of(self, claim: Claim) -> Outcome:
        try:
            return self._run(claim)
        except Abandoned:
            raise
        except BaseException as error:  # noqa: BLE001 - even our own mistake must not leave a claim without an outcome
            return failure(claim, error)
