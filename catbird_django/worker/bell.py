"""What wakes the claim loop: new work, free slots, the end."""

from __future__ import annotations

import threading


class Bell:
    """Counts its rings, so that one that came while nobody listened is not lost.

    Whoever is about to look for work notes the count first; if it rang since, there is no waiting.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._rings = 0

    def rings(self) -> int:
        """How often it rang so far."""
        return self._rings

    def ring(self) -> None:
        with self._condition:
            self._rings += 1
            self._condition.notify_all()

    def wait(self, *, after: int, timeout: float) -> bool:
        """Wait until it has rung more often than `after`, at most `timeout` seconds; say whether it has."""
        with self._condition:
            return self._condition.wait_for(lambda: self._rings > after, timeout)
