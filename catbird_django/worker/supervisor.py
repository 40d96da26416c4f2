"""Keeps a number of worker processes alive, and stops them together (W1, W8)."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from types import FrameType

from catbird_django.worker.backoff import Backoff
from catbird_django.worker.channel import Channel
from catbird_django.worker.fresh_process import start_process
from catbird_django.worker.orders import Order, Orders
from catbird_django.worker.process import DRAIN_SIGNAL, LAST_MOMENT, NEEDS_REPLACEMENT, STOP_SIGNALS

logger = logging.getLogger("catbird.supervisor")

ENTRY = "catbird_django.management.supervised_worker:main"
LOOK_EVERY = 0.1  # seconds
HEALTHY_AFTER = 10.0
"""After how many seconds a process that ends was not a failed start."""
SHORTEST_LIFE = 1.0
LATER_THAN_THEM = timedelta(seconds=0.2)


class WorkerProcess:
    """A worker process with a line to us: when the line ends, because we did, it stops."""

    def __init__(self, arguments: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = start_process(ENTRY, end=theirs, own_session=False)
        self._line = Channel(ours)
        self._line.send({"arguments": list(arguments)})
        self.started_at = time.monotonic()

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """The code it has ended with; None while it lives."""
        return self._process.poll()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()

    def see_off(self) -> None:
        """Close the line to a process that has ended."""
        self._line.close()


@dataclass(slots=True)
class Place:
    """Room for one worker process."""

    process: WorkerProcess | None = None
    fill_at: float | None = 0.0
    """When to start one, if there is none; None for never again."""
    backoff: Backoff = field(default_factory=lambda: Backoff(shortest=0.5))


class Supervisor:
    """Fills its places with worker processes, and fills them again, until it is told to stop."""

    def __init__(self, count: int, arguments: Sequence[str], *, grace: timedelta, ends_with_workers: bool) -> None:
        self._arguments = arguments
        self._dead_after = (grace + LAST_MOMENT + LATER_THAN_THEM).total_seconds()
        self._ends_with_workers = ends_with_workers
        self._places = [Place() for _ in range(count)]
        self._orders = Orders()
        self._ending: Order | None = None
        self._kill_at = float("inf")
        self._exit_code = 0

    def run(self) -> int:
        """Keep workers alive until told to stop, or until they have ended by themselves; return the exit code."""
        with self._obeying_signals():
            while any(place.process or place.fill_at is not None for place in self._places):
                for place in self._places:
                    self._look_after(place)
                if time.monotonic() > self._kill_at:
                    self._kill()
                if order := self._orders.next(within=LOOK_EVERY):
                    self._pass_on(order)
        return self._exit_code

    def _look_after(self, place: Place) -> None:
        if place.process is not None and (code := place.process.exit_code()) is not None:
            place.process.see_off()
            place.fill_at = self._when_to_replace(place.process, code, place.backoff)
            place.process = None
        if place.process is None and place.fill_at is not None and place.fill_at <= time.monotonic():
            self._fill(place)

    def _fill(self, place: Place) -> None:
        try:
            place.process = WorkerProcess(self._arguments)
        except OSError as error:  # no memory, or too many processes, just now
            pause = place.backoff.next_pause()
            logger.exception("cannot start a worker process", extra={"error": str(error), "retry_in": pause})
            place.fill_at = time.monotonic() + pause
            return
        logger.info("worker process started", extra={"pid": place.process.pid})

    def _when_to_replace(self, process: WorkerProcess, code: int, backoff: Backoff) -> float | None:
        """When to start another in the place of a process that has ended; None for never."""
        now = time.monotonic()
        lived = now - process.started_at
        details = {"pid": process.pid, "exit_code": code}
        if self._ending or (code == 0 and self._ends_with_workers):
            return None
        if lived > HEALTHY_AFTER:
            backoff.reset()
        if code in (0, NEEDS_REPLACEMENT):
            logger.info("worker process is replaced", extra=details)
            return now if lived > SHORTEST_LIFE else now + backoff.next_pause()
        if self._ends_with_workers:
            logger.error("worker process has died", extra=details)
            self._exit_code = 1
            return None
        pause = backoff.next_pause()  # whatever kills it may kill the next one too: no busy loop
        logger.error("worker process has died, starting another", extra={**details, "retry_in": pause})
        return now + pause

    def _pass_on(self, order: Order) -> None:
        """Tell the workers to drain or to stop, and start no more of them."""
        self._ending = order
        if order is Order.STOP:
            self._kill_at = min(self._kill_at, time.monotonic() + self._dead_after)
        number = signal.SIGTERM if order is Order.STOP else DRAIN_SIGNAL
        for place in self._places:
            place.fill_at = None
            if place.process is not None and number is not None:
                place.process.signal(number)

    def _kill(self) -> None:
        for place in self._places:
            if place.process is not None:
                place.process.kill()

    @contextmanager
    def _obeying_signals(self) -> Iterator[None]:
        """The first SIGTERM or SIGINT stops the workers, the second kills them; SIGUSR1 lets them drain."""
        given: list[int] = []

        def stop_or_kill(number: int, _frame: FrameType | None) -> None:
            if given:
                self._kill()
                os._exit(128 + number)
            given.append(number)
            self._orders.give(Order.STOP)

        before = {number: signal.signal(number, stop_or_kill) for number in STOP_SIGNALS}
        if DRAIN_SIGNAL is not None:
            before[DRAIN_SIGNAL] = signal.signal(DRAIN_SIGNAL, lambda *_: self._orders.give(Order.DRAIN))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
