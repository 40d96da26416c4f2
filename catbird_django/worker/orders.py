"""What a worker is told from outside: to drain, or to stop."""

from __future__ import annotations

import enum
import queue


class Order(enum.Enum):
    """What a worker may be told."""

    DRAIN = enum.auto()
    """Claim no more, and end when what runs has ended, however long that takes."""
    STOP = enum.auto()
    """Claim no more, finish what runs within the grace, give back the rest."""


class Orders:
    """Takes orders from any thread, and from signal handlers: unlike an Event, this queue may be used while in use."""

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[Order] = queue.SimpleQueue()

    def give(self, order: Order) -> None:
        self._given.put(order)

    def next(self, *, within: float) -> Order | None:
        """Wait for the next order, so many seconds at most."""
        try:
            return self._given.get(timeout=within)
        except queue.Empty:
            return None
