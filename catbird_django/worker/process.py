"""A worker as a process of the operating system: what signals do to it, and the code it exits with (W4, W8)."""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Final, NoReturn

from catbird_django.worker.worker import Worker

NEEDS_REPLACEMENT: Final = 75
"""EX_TEMPFAIL: start another in my place."""

LAST_MOMENT = timedelta(seconds=4.5)
"""How long after the grace a stopping process ends, whatever it still waits for."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
DRAIN_SIGNAL: signal.Signals | None = getattr(signal, "SIGUSR1", None)  # there is none on Windows


class Stopper:
    """Stops a worker, and ends the process in time even if the worker cannot: the database is gone, threads hang."""

    def __init__(self, worker: Worker, *, grace: timedelta) -> None:
        self._worker = worker
        self._dead_after = (grace + LAST_MOMENT).total_seconds()
        # Not an Event: a signal handler may run while its own thread holds that one's lock.
        self._asked: queue.SimpleQueue[None] = queue.SimpleQueue()

    @property
    def was_used(self) -> bool:
        return not self._asked.empty()

    def stop(self) -> None:
        """Stop the worker. A second call changes nothing."""
        if self.was_used:
            return
        self._asked.put(None)
        self._worker.stop()
        threading.Thread(target=self._exit_in_time, name="catbird-exit", daemon=True).start()

    def _exit_in_time(self) -> None:
        time.sleep(self._dead_after)
        os._exit(0)


@contextmanager
def leaving_on_signals() -> Iterator[None]:
    """SIGTERM or SIGINT ends the process with 0 and without a word: before there is a worker, nothing is to be done."""
    before = {number: signal.signal(number, lambda *_: sys.exit(0)) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def obeying_signals(worker: Worker, stopper: Stopper, *, a_second_one_kills: bool) -> Iterator[None]:
    """SIGTERM or SIGINT stops the worker, a second one ends the process; SIGUSR1 lets it drain."""

    def stop_or_die(number: int, _frame: FrameType | None) -> None:
        if stopper.was_used and a_second_one_kills:
            os._exit(128 + number)
        stopper.stop()

    before = {number: signal.signal(number, stop_or_die) for number in STOP_SIGNALS}
    if DRAIN_SIGNAL is not None:
        before[DRAIN_SIGNAL] = signal.signal(DRAIN_SIGNAL, lambda *_: worker.drain())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_now(code: int) -> NoReturn:
    """End the process, and with it the threads that handlers have left behind; nothing of ours is left to do."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
