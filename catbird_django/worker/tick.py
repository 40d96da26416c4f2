"""The upkeep that one elected worker does for all: runs made due, lost runs taken back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from django.db import connections

from catbird_django.engine import tick as engine
from catbird_django.engine.call import DATABASE_TROUBLE
from catbird_django.engine.tick import Tick
from catbird_django.worker.patience import Calling

logger = logging.getLogger("catbird.worker")

LIMIT = 1000  # runs moved in one transaction
SHORTEST_PAUSE = 0.01  # seconds
GATHER = 0.05  # seconds between two rounds that others wake us for: who queues many delayed runs wakes us for each
PAUSE_OVERDUE = 0.25  # what should have been moved and was not, somebody has locked: no busy loop meanwhile


class Ticker:
    """Ticks on a thread and a connection of its own: at least once per interval, and when the next run is due."""

    def __init__(
        self,
        worker_id: int,
        *,
        interval: timedelta,
        cancel_grace: timedelta,
        using: str,
        wake_workers: Callable[[Sequence[str]], None],
        ticked: Callable[[Tick], None],
        calling: Calling,
    ) -> None:
        self._ticked = ticked
        self._calling = calling
        self._cancel_grace = cancel_grace
        self._worker_id = worker_id
        self._interval = interval
        self._using = using
        self._wake_workers = wake_workers
        self._woken = threading.Event()
        self._stopping = False
        self._is_elected = False
        self._ticked_at = 0.0
        self._first_pause = 0.0
        self._thread = threading.Thread(target=self._run, name="catbird-tick", daemon=True)

    def start(self) -> None:
        """Do a first round at once, so that whoever looks for work afterwards finds what is due; then go on."""
        self._first_pause = self._tick()
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def wake(self) -> None:
        """A run may be due earlier than we know. Whoever is not elected leaves that to the one who is."""
        if self._is_elected:
            self._woken.set()

    def stop(self) -> None:
        self._stopping = True
        self._woken.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        with self._calling():
            self._loop()

    def _loop(self) -> None:
        pause = self._first_pause
        while True:
            if self._woken.wait(pause) and not self._stopping:
                time.sleep(max(0.0, self._ticked_at + GATHER - time.monotonic()))
            self._woken.clear()
            if self._stopping:
                break
            pause = self._tick()
            self._ticked_at = time.monotonic()
        connections.close_all()

    def _tick(self) -> float:
        """Do a round, or see that another worker does it; return how many seconds to sleep."""
        try:
            # Held longer than the pause between two rounds, so that the upkeep stays with one worker.
            tick = engine.tick(
                self._worker_id,
                hold=3 * self._interval,
                limit=LIMIT,
                cancel_grace=self._cancel_grace,
                using=self._using,
            )
            if tick.queues:
                self._wake_workers(tick.queues)
        except DATABASE_TROUBLE as error:
            logger.warning("cannot do the upkeep, trying again", extra={"error": str(error)})
            connections.close_all()
            return self._interval.total_seconds()
        self._is_elected = tick.is_elected
        self._ticked(tick)
        if tick.lost_count:
            logger.warning("runs had lost their worker", extra={"count": tick.lost_count})
        return self._pause_after(tick)

    def _pause_after(self, tick: Tick) -> float:
        if tick.is_full:
            return 0
        interval = self._interval if tick.next_due_in is None else min(self._interval, tick.next_due_in)
        return max(SHORTEST_PAUSE if interval > timedelta(0) else PAUSE_OVERDUE, interval.total_seconds())
