"""Failures that the database does not know of yet, of tasks with a circuit breaker (T9)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from catbird_django.engine.steps import AnyDelivery, Claim


class InDoubt(Exception):
    """A claim is not begun, since its task is in doubt."""


class Doubts:
    """Tasks that have failed so often since we last told the database that it may open their breaker.

    Until it has decided, nothing more of them is begun: a handler that fails at once would fail hundreds of times
    before the first failures are settled.
    """

    def __init__(self, allowed: Mapping[int, int]) -> None:
        self._allowed = allowed
        self._lock = threading.Lock()
        self._untold: dict[AnyDelivery, int] = {}
        self.tasks: frozenset[int] = frozenset()

    def failed(self, claim: Claim) -> None:
        """Note a failed attempt, which is yet to be settled."""
        if claim.handler_id in self._allowed:
            with self._lock:
                self._untold[claim.delivery] = claim.handler_id
                self._decide()

    def settled(self, deliveries: Iterable[AnyDelivery]) -> bool:
        """Note what the database has taken; say whether failures were among it."""
        if not self._untold:
            return False
        with self._lock:
            told = [self._untold.pop(delivery, None) for delivery in deliveries]
            self._decide()
        return any(task_id is not None for task_id in told)

    def _decide(self) -> None:
        counts = Counter(self._untold.values())
        self.tasks = frozenset(task_id for task_id, count in counts.items() if count >= self._allowed[task_id])
