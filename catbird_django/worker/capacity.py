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
class HandlerLimits:
    """What a handler allows of itself in one worker; None for what the worker allows."""

    concurrency: int | None = None
    batch_size: int | None = None


class Left:
    """How many more runs of a handler may be in flight; steps of several versions of a flow may share one."""

    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count


class Capacity:
    """The claims in flight of one runner: begun or waiting, until they are finished.

    A handler may have as many claims waiting as it finished within the last window, at most `prefetch`, and none until
    that was measured: so a slow handler never holds work that another worker could do. Nor does one ever hold more than
    its concurrency: runners begin whatever they are given.
    """

    def __init__(self, slots: int, *, prefetch: int, limits: Mapping[int, HandlerLimits] | None = None) -> None:
        self._slots = slots
        self._prefetch = prefetch
        self._limits = limits or {}
        self._lock = threading.Lock()
        self._total = 0
        self._was_low = True
        self._meters: dict[int, Meter] = {}
        # Of handlers with a concurrency of their own.
        self._left = {
            handler_id: Left(limit.concurrency)
            for handler_id, limit in self._limits.items()
            if limit.concurrency is not None
        }

    @property
    def in_flight(self) -> int:
        return self._total

    def room(self, handler_id: int, *, ahead: bool = True) -> int:
        """How many more runs of this handler the slots allow now; with `ahead`, also those that would wait for one."""
        with self._lock:
            free_slots = max(0, self._slots - self._total)
            if not ahead:
                return free_slots
            waiting = max(0, self._total - self._slots)
            return free_slots + max(0, self._prefetch_of(handler_id) - waiting)

    def left(self, handler_id: int) -> int | None:
        """How many more runs of this handler its own concurrency allows; None when it has none."""
        left = self._left.get(handler_id)
        return None if left is None else left.count

    def share(self, handler_id: int) -> Left | None:
        """What is left of its concurrency, which all numbers of a handler share."""
        return self._left.get(handler_id)

    def add(self, handler_id: int, *, like: int) -> None:
        """Take a number for a handler that has one already: they share what the handler allows of itself."""
        with self._lock:
            if like in self._left:
                self._left = {**self._left, handler_id: self._left[like]}
            if like in self._limits:
                self._limits = {**self._limits, handler_id: self._limits[like]}

    def has_free_slot(self) -> bool:
        return self._total < self._slots

    def has_waiting(self) -> bool:
        """Whether claims wait for a slot."""
        return self._total > self._slots

    def is_low(self) -> bool:
        """Whether it is time to claim again: a slot is free, or half of what may wait has been begun."""
        with self._lock:
            return self._is_low(time.monotonic())

    def take(self, handler_ids: Collection[int]) -> None:
        """Count claims, given by their handlers."""
        with self._lock:
            self._total += len(handler_ids)
            self._was_low = False
            if self._left:
                for handler_id in handler_ids:
                    if handler_id in self._left:
                        self._left[handler_id].count -= 1

    def give_back(self, handler_id: int, *, finished: bool) -> bool:
        """Count one claim less; say whether it is worth claiming again: a slot is free, or it has just become low."""
        now = time.monotonic()
        with self._lock:
            self._total -= 1
            if handler_id in self._left:
                self._left[handler_id].count += 1
            if finished:
                meter = self._meters.get(handler_id)
                if meter is None:
                    meter = self._meters[handler_id] = self._new_meter(handler_id)
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

    def _prefetch_of(self, handler_id: int) -> int:
        meter = self._meters.get(handler_id)
        return meter.prefetch(time.monotonic()) if meter else 0

    def _new_meter(self, handler_id: int) -> Meter:
        batch_size = self._limits.get(handler_id, HandlerLimits()).batch_size
        return Meter(self._prefetch if batch_size is None else min(self._prefetch, batch_size))


class Capacities:
    """The capacity of each handler's runner: sync handlers and async ones do not take each other's slots."""

    def __init__(self, by_handler: Mapping[int, Capacity]) -> None:
        self._by_handler = dict(by_handler)
        self._all = set(by_handler.values())

    def __getitem__(self, handler_id: int) -> Capacity:
        return self._by_handler[handler_id]

    def add(self, handler_id: int, *, like: int) -> None:
        """Take another number for a handler."""
        self._by_handler[like].add(handler_id, like=like)
        self._by_handler[handler_id] = self._by_handler[like]

    def is_low(self) -> bool:
        return not self._all or any(capacity.is_low() for capacity in self._all)

    def has_free_slot(self) -> bool:
        return not self._all or any(capacity.has_free_slot() for capacity in self._all)

    def has_waiting(self) -> bool:
        return any(capacity.has_waiting() for capacity in self._all)

    @property
    def in_flight(self) -> int:
        return sum(capacity.in_flight for capacity in self._all)
