"""What ran, for assertions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from catbird_django.testing.names import name_of_work


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One claim that was run."""

    name: str
    """The task, or the step as flow.step."""
    run_id: int
    """Of the task's run, or of the flow run."""
    number: int
    """1 for the first attempt, as in `ctx.attempt`."""
    outcome: str
    """completed, retrying, failed, released, canceled, skipped, or stale when the result did not count any more."""
    error: str = ""
    """Type and message of what the handler raised, if it failed."""
    index: int | None = None
    """The place of the item, in a map."""

    def __str__(self) -> str:
        place = "" if self.index is None else f"[{self.index}]"
        return f"{self.name}{place} {self.outcome}{f' ({self.error})' if self.error else ''}"


@dataclass(frozen=True, slots=True)
class Ran:
    """What ran, in order. It is true if anything did; `+` joins two."""

    attempts: tuple[Attempt, ...] = ()
    passed: timedelta = timedelta(0)
    """How far the clock was turned meanwhile."""

    @property
    def names(self) -> list[str]:
        """What ran, in order: tasks, and steps as flow.step."""
        return [attempt.name for attempt in self.attempts]

    @property
    def counts(self) -> dict[str, int]:
        """How often each task or step was run."""
        return dict(Counter(self.names))

    @property
    def failures(self) -> list[Attempt]:
        """The attempts that went wrong, those that were or will be tried again included."""
        return [attempt for attempt in self.attempts if attempt.error]

    def of(self, target: Any) -> Ran:
        """What ran of one task or step, given as itself or by name."""
        name = name_of_work(target)
        return replace(self, attempts=tuple(attempt for attempt in self.attempts if attempt.name == name))

    @property
    def outcomes(self) -> list[str]:
        """How each attempt ended, in order."""
        return [attempt.outcome for attempt in self.attempts]

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self.attempts)

    def __len__(self) -> int:
        return len(self.attempts)

    def __add__(self, other: Ran) -> Ran:
        return Ran(self.attempts + other.attempts, self.passed + other.passed)

    def __repr__(self) -> str:
        return f"<Ran {', '.join(map(str, self.attempts)) or 'nothing'}>"
