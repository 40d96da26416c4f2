"""What handlers say about their runs, on its way to the database."""

from __future__ import annotations

from collections.abc import Callable

from catbird_django.engine.tasks import TaskClaim


class ClaimReporter:
    """Takes the words of one handler."""

    def __init__(self, claim: TaskClaim, *, is_canceled: Callable[[TaskClaim], bool]) -> None:
        self._claim = claim
        self._is_canceled = is_canceled

    def is_canceled(self) -> bool:
        return self._is_canceled(self._claim)

    def progress(self, done: float, total: float | None, message: str) -> None:
        pass

    def log(self, level: str, message: str) -> None:
        pass

    def heartbeat(self) -> None:
        pass
