"""How long to wait before the next attempt at something that fails for a while."""

from __future__ import annotations

SHORTEST = 0.1  # seconds
LONGEST = 5.0


class Backoff:
    """Pauses that double from failure to failure, up to a few seconds, and begin anew after a success."""

    def __init__(self, *, shortest: float = SHORTEST, longest: float = LONGEST) -> None:
        self._longest = longest
        self._shortest = shortest
        self._next = shortest

    def next_pause(self) -> float:
        pause, self._next = self._next, min(self._next * 2, self._longest)
        return pause

    def reset(self) -> None:
        self._next = self._shortest
