"""How much this worker may hold: free slots, and a prefetch that follows what handlers really finish (W2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

WINDOW = 0.1  # seconds over which finished runs are counted


class Meter:
    """Counts what was finished within the last window, in two halves that take turns."""

    def __init__(self) -> None:
        self._half = 0
        self._now = 0
        self._before = 0

    def add(self, moment: float) -> None:
        self._turn(moment)
        self._now += 1

    def count(self, moment: float) -> int:
        self._turn(moment)
        return self._now + self._before

    def _turn(self, moment: float) -> None:
        half = int(moment / (WINDOW / 2))
        if half == self._half:
            return
        self._before = self._now if half == self._half + 1 else 0
        self._half, self._now = half, 0


class Capacity:
    """The claims in flight of one runner: begun or waiting, until they are finished.

    A handler may have as many claims waiting as it finished within the last window, at most `prefetch`, and none until
    that was measured: so a slow handler never holds work that another worker could do.
    """

    def __init__(self, slots: int, *, prefetch: int) -> None:
        self._slots = slots
        self._prefetch = prefetch
        self._lock = threading.Lock()
        self._total = 0
        self._was_low = True
        self._meters: dict[int, Meter] = {}

    @property
    def in_flight(self) -> int:
        return self._total

    def room(self, task_id: int) -> int:
        """How many more runs of this task may be claimed now."""
        with self._lock:
            free_slots = max(0, self._slots - self._total)
            waiting = max(0, self._total - self._slots)
            return free_slots + max(0, self._prefetch_of(task_id) - waiting)

    def is_low(self) -> bool:
        """Whether it is time to claim again: a slot is free, or half of what may wait has been begun."""
        with self._lock:
            return self._is_low(time.monotonic())

    def take(self, count: int) -> None:
        with self._lock:
            self._total += count
            self._was_low = False

    def give_back(self, task_id: int, *, finished: bool) -> bool:
        """Count one claim less; say whether it is worth claiming again: a slot is free, or it has just become low."""
        now = time.monotonic()
        with self._lock:
            self._total -= 1
            if finished:
                meter = self._meters.get(task_id)
                if meter is None:
                    meter = self._meters[task_id] = Meter()
                meter.add(now)
            was_low, self._was_low = self._was_low, self._is_low(now)
            return self._total < self._slots or (self._was_low and not was_low)

    def _is_low(self, now: float) -> bool:
        if self._total < self._slots:
            return True
        finished = max([meter.count(now) for meter in self._meters.values()], default=0)
        return self._total < self._slots + min(finished, self._prefetch) // 2

    def _prefetch_of(self, task_id: int) -> int:
        meter = self._meters.get(task_id)
        return min(meter.count(time.monotonic()), self._prefetch) if meter else 0


class Capacities:
    """The capacity of each task's runner: sync handlers and async ones do not take each other's slots."""

    def __init__(self, by_task: Mapping[int, Capacity]) -> None:
        self._by_task = by_task
        self._all = set(by_task.values())

    def __getitem__(self, task_id: int) -> Capacity:
        return self._by_task[task_id]

    def is_low(self) -> bool:
        return any(capacity.is_low() for capacity in self._all)

    @property
    def in_flight(self) -> int:
        return sum(capacity.in_flight for capacity in self._all)
