"""How much this worker may hold: free slots, and a prefetch that follows what handlers really finish (W2, T10)."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

WINDOW = 0.1  # seconds over which finished runs are counted


class Meter:
    """Counts what was finished within the last window, in two halves that take turns."""

    def __init__(self, most: int) -> None:
        self.most = most
        """The largest prefetch, however much is finished."""
        self._half = 0
        self._now = 0
        self._before = 0

    def add(self, moment: float, count: int = 1) -> None:
        self._turn(moment)
        self._now += count

    def count(self, moment: float) -> int:
        self._turn(moment)
        return self._now + self._before

    def prefetch(self, moment: float) -> int:
        return min(self.count(moment), self.most)

    def _turn(self, moment: float) -> None:
        half = int(moment / (WINDOW / 2))
        if half == self._half:
            return
        self._before = self._now if half == self._half + 1 else 0
        self._half, self._now = half, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """What a task allows of itself in one worker; None for what the worker allows."""

    concurrency: int | None = None
    batch_size: int | None = None


class Capacity:
    """The claims in flight of one runner: begun or waiting, until they are finished.

    A handler may have as many claims waiting as it finished within the last window, at most `prefetch`, and none until
    that was measured: so a slow handler never holds work that another worker could do. Nor does a task ever hold more
    than its concurrency: runners begin whatever they are given.
    """

    def __init__(self, slots: int, *, prefetch: int, limits: Mapping[int, TaskLimits] | None = None) -> None:
        self._slots = slots
        self._prefetch = prefetch
        self._limits = limits or {}
        self._lock = threading.Lock()
        self._total = 0
        self._was_low = True
        self._meters: dict[int, Meter] = {}
        # How many more runs of it may be in flight; for tasks with a concurrency of their own.
        self._left = {task: limit.concurrency for task, limit in self._limits.items() if limit.concurrency is not None}

    @property
    def in_flight(self) -> int:
        return self._total

    def room(self, task_id: int, *, ahead: bool = True) -> int:
        """How many more runs of this task the slots allow now; with `ahead`, also those that would wait for one."""
        with self._lock:
            free_slots = max(0, self._slots - self._total)
            if not ahead:
                return free_slots
            waiting = max(0, self._total - self._slots)
            return free_slots + max(0, self._prefetch_of(task_id) - waiting)

    def left(self, task_id: int) -> int | None:
        """How many more runs of this task its own concurrency allows; None when it has none."""
        return self._left.get(task_id)

    def has_free_slot(self) -> bool:
        return self._total < self._slots

    def has_waiting(self) -> bool:
        """Whether claims wait for a slot."""
        return self._total > self._slots

    def is_low(self) -> bool:
        """Whether it is time to claim again: a slot is free, or half of what may wait has been begun."""
        with self._lock:
            return self._is_low(time.monotonic())

    def take(self, task_ids: Collection[int]) -> None:
        """Count claims, given by the tasks they are of."""
        with self._lock:
            self._total += len(task_ids)
            self._was_low = False
            if self._left:
                for task_id in task_ids:
                    if task_id in self._left:
                        self._left[task_id] -= 1

    def give_back(self, task_id: int, *, finished: bool) -> bool:
        """Count one claim less; say whether it is worth claiming again: a slot is free, or it has just become low."""
        now = time.monotonic()
        with self._lock:
            self._total -= 1
            if task_id in self._left:
                self._left[task_id] += 1
            if finished:
                meter = self._meters.get(task_id)
                if meter is None:
                    meter = self._meters[task_id] = self._new_meter(task_id)
                meter.add(now)
            was_low, self._was_low = self._was_low, self._is_low(now)
            return self._total < self._slots or (self._was_low and not was_low)

    def _is_low(self, now: float) -> bool:
        if self._total < self._slots:
            return True
        if self._total >= self._slots + self._prefetch // 2:
            return False  # whatever was measured
        prefetch = max([meter.prefetch(now) for meter in self._meters.values()], default=0)
        return self._total < self._slots + prefetch // 2

    def _prefetch_of(self, task_id: int) -> int:
        meter = self._meters.get(task_id)
        return meter.prefetch(time.monotonic()) if meter else 0

    def _new_meter(self, task_id: int) -> Meter:
        batch_size = self._limits.get(task_id, TaskLimits()).batch_size
        return Meter(self._prefetch if batch_size is None else min(self._prefetch, batch_size))


class Capacities:
    """The capacity of each task's runner: sync handlers and async ones do not take each other's slots."""

    def __init__(self, by_task: Mapping[int, Capacity]) -> None:
        self._by_task = by_task
        self._all = set(by_task.values())

    def __getitem__(self, task_id: int) -> Capacity:
        return self._by_task[task_id]

    def is_low(self) -> bool:
        return any(capacity.is_low() for capacity in self._all)

    def has_free_slot(self) -> bool:
        return any(capacity.has_free_slot() for capacity in self._all)

    def has_waiting(self) -> bool:
        return any(capacity.has_waiting() for capacity in self._all)

    @property
    def in_flight(self) -> int:
        return sum(capacity.in_flight for capacity in self._all)
