"""What the elected worker does for all without hurry: dead rows, retention, workers that are gone.

On a thread and a connection of its own, so that nothing slow holds up what is due. A part says when it wants to act;
one that has nothing to do asks the database nothing.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from django.db import connections

from catbird_django.engine import housekeeping as engine
from catbird_django.engine.call import DATABASE_TROUBLE
from catbird_django.engine.flow_retention import apply_flow_retention
from catbird_django.engine.retention import apply_retention
from catbird_django.engine.tick import Tick
from catbird_django.worker.patience import Calling

logger = logging.getLogger("catbird.worker")

NEVER = math.inf
MANY = 10_000  # dead rows, or runs settled, that are worth a VACUUM
PAUSE = 1.0  # seconds between two of them, at least
LONGEST_PAUSE = 60.0
WHEN_REFUSED = 3600.0
SHARE = 4  # a part that takes one second waits three: it has a quarter of the time

LOOK_AROUND_EVERY = 60.0
KEEP_STOPPED = timedelta(days=1)

RETENTION_BATCH = 1000  # runs looked at in one transaction
PAUSE_AFTER_REMOVING, PAUSE_AFTER_NOTHING = 60.0, 600.0
WHEN_IN_TROUBLE = 5.0

Clock = Callable[[], float]
Apply = Callable[..., tuple[int, int | None]]


class Part(Protocol):
    """A piece of housekeeping."""

    @property
    def due_at(self) -> float:
        """When it wants to act, on the monotonic clock."""

    def act(self) -> None:
        """Do a bounded piece of it, and say when to go on. Raises what the database raises."""


class Vacuum:
    """Frees the room of dead rows when there are many: claims walk over them, and slow down (PERFORMANCE 4.3).

    The statistics of the server are a second old, and come with the tick; what this worker itself has settled it knows
    at once. While an old transaction keeps the rows from being removed, it tries less and less often.
    """

    def __init__(self, *, using: str, clock: Clock = time.monotonic) -> None:
        self._using = using
        self._clock = clock
        self._dead_rows = 0
        self._settled = 0
        self._not_before = 0.0
        self._pause = PAUSE
        self._was_refused = False

    @property
    def due_at(self) -> float:
        return self._not_before if max(self._dead_rows, self._settled) >= MANY else NEVER

    def settled(self, count: int) -> None:
        self._settled += count

    def noticed(self, dead_rows: int) -> None:
        self._dead_rows = dead_rows

    def act(self) -> None:
        began = self._clock()
        before = engine.count_dead_rows(using=self._using)
        self._settled = 0
        if not before.may_vacuum:
            self._refused()
            return
        engine.vacuum_runs(using=self._using)
        self._dead_rows = engine.count_dead_rows(using=self._using).dead_rows
        was_in_vain = self._dead_rows >= MANY and self._dead_rows > before.dead_rows / 2
        self._pause = min(2 * self._pause, LONGEST_PAUSE) if was_in_vain else PAUSE
        took = self._clock() - began
        self._not_before = self._clock() + max(self._pause, (SHARE - 1) * took)
        logger.debug("vacuumed", extra={"dead_rows": before.dead_rows, "left": self._dead_rows, "seconds": took})

    def _refused(self) -> None:
        if not self._was_refused:
            logger.warning("this database role may not VACUUM the tables of runs, so only autovacuum does")
        self._was_refused = True
        self._not_before = self._clock() + WHEN_REFUSED


class Retention:
    """Removes runs that are old enough, pass after pass from the oldest on, in small transactions (T15)."""

    def __init__(
        self, retention: timedelta | None, *, using: str, apply: Apply | None = None, clock: Clock = time.monotonic
    ) -> None:
        self._apply = apply or apply_retention
        self._retention = retention
        self._using = using
        self._clock = clock
        self._after_id = 0
        self._removed = 0
        self._pass_began = 0.0
        self.due_at = 0.0

    def act(self) -> None:
        began = self._clock()
        if not self._after_id:
            self._pass_began = began
        removed, last_id = self._apply(
            self._retention, after_id=self._after_id, limit=RETENTION_BATCH, using=self._using
        )
        self._removed += removed
        self._after_id = last_id or 0
        if last_id is None:
            self._end_pass()
        else:
            self.due_at = self._clock() + (SHARE - 1) * (self._clock() - began)

    def _end_pass(self) -> None:
        if self._removed:
            logger.info("old runs were removed", extra={"count": self._removed})
        # Where something was removed, more will soon be old enough; where nothing was, there is no hurry. And a pass
        # over many runs that are kept for longer should be the exception, not what the server is always busy with.
        pause = PAUSE_AFTER_REMOVING if self._removed else PAUSE_AFTER_NOTHING
        self.due_at = self._clock() + max(pause, SHARE * (self._clock() - self._pass_began))
        self._removed = 0


class House:
    """Removes the rows of workers that are gone, and warns of transactions that keep dead rows alive (W9)."""

    def __init__(self, *, worker_ttl: timedelta, using: str, clock: Clock = time.monotonic) -> None:
        self._worker_ttl = worker_ttl
        self._using = using
        self._clock = clock
        self.due_at = 0.0

    def act(self) -> None:
        found = engine.keep_house(worker_ttl=self._worker_ttl, keep_stopped=KEEP_STOPPED, using=self._using)
        self.due_at = self._clock() + LOOK_AROUND_EVERY
        if found.lost_workers:
            logger.warning("workers were not heard of", extra={"workers": list(found.lost_workers)})
        if found.old_transactions:
            logger.warning(
                "transactions are open for more than a minute, and dead rows pile up behind them",
                extra={"count": found.old_transactions, "oldest": str(found.oldest_transaction)},
            )


class Housekeeper:
    """Lets the parts act when they want to, while this worker is elected."""

    def __init__(self, *, retention: timedelta | None, worker_ttl: timedelta, using: str, calling: Calling) -> None:
        self._calling = calling
        self._vacuum = Vacuum(using=using)
        self._parts: list[Part] = [
            self._vacuum,
            Retention(retention, using=using),
            Retention(retention, apply=apply_flow_retention, using=using),
            House(worker_ttl=worker_ttl, using=using),
        ]
        self._is_elected = False
        self._not_before = 0.0
        self._woken = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="catbird-housekeeping", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread after what is under way; a long VACUUM is not waited for."""
        self._stopping = True
        self._woken.set()
        self._thread.join(timeout=2)

    def ticked(self, tick: Tick) -> None:
        """Hear from the tick whether we are elected, and of dead rows."""
        was_elected, self._is_elected = self._is_elected, tick.is_elected
        had_much = self._vacuum.due_at < NEVER
        self._vacuum.noticed(tick.dead_rows)
        if tick.is_elected and not (was_elected and had_much):
            self._woken.set()

    def settled(self, count: int) -> None:
        """Hear of runs that this worker has settled: each leaves dead rows behind."""
        had_much = self._vacuum.due_at < NEVER
        self._vacuum.settled(count)
        if self._is_elected and not had_much and self._vacuum.due_at < NEVER:
            self._woken.set()

    def _run(self) -> None:
        with self._calling():
            self._loop()

    def _loop(self) -> None:
        while True:
            self._woken.wait(self._pause())
            self._woken.clear()
            if self._stopping:
                break
            if self._is_elected and time.monotonic() >= self._not_before:
                self._act()
        connections.close_all()

    def _pause(self) -> float | None:
        """How long until a part is due; None: until we are woken."""
        due_at = min(part.due_at for part in self._parts) if self._is_elected else NEVER
        return None if due_at == NEVER else max(0.0, max(due_at, self._not_before) - time.monotonic())

    def _act(self) -> None:
        for part in self._parts:
            if self._stopping or part.due_at > time.monotonic():
                continue
            try:
                part.act()
            except DATABASE_TROUBLE as error:
                logger.warning("cannot keep house, trying again", extra={"error": str(error)})
                connections.close_all()
                self._not_before = time.monotonic() + WHEN_IN_TROUBLE
                return
