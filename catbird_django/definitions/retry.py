"""How often, and after how long, a failed attempt is tried again (T7)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from catbird_django.errors import DefinitionError

Backoff = tuple[float, float] | Callable[[int], float | timedelta]
ExceptionClasses = tuple[type[BaseException], ...]

DEFAULT_BACKOFF = (0.5, 300.0)  # seconds
LONGEST_DELAY = timedelta(days=366)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """What a task does about a failed attempt."""

    max_retries: int = 0
    backoff: Backoff = DEFAULT_BACKOFF
    retry_on: ExceptionClasses = (Exception,)
    no_retry_on: ExceptionClasses = ()

    def delay_after(self, error: BaseException, failure_count: int, *, is_asked_for: bool = False) -> timedelta | None:
        """How long to wait before the next attempt, after so many failures before this one; None for no retry.

        What the handler itself has asked for is no question of the classes of exceptions.
        """
        if failure_count >= self.max_retries or not (is_asked_for or self._covers(error)):
            return None
        return self._delay(failure_count)

    def _covers(self, error: BaseException) -> bool:
        return isinstance(error, self.retry_on) and not isinstance(error, self.no_retry_on)

    def _delay(self, failure_count: int) -> timedelta:
        if callable(self.backoff):
            return as_delay(self.backoff(failure_count + 1))
        shortest, longest = self.backoff
        # Full jitter: runs that failed together must not come back together.
        ceiling = min(longest, max(shortest, 0.001) * 2.0 ** min(failure_count + 1, 60))
        return timedelta(seconds=random.uniform(shortest, max(shortest, ceiling)))  # noqa: S311 - not cryptography


def as_delay(value: float | timedelta) -> timedelta:
    """A delay given in seconds or as a timedelta, within reason."""
    delay = value if isinstance(value, timedelta) else timedelta(seconds=value)
    return min(max(delay, timedelta(0)), LONGEST_DELAY)


def check_retry_policy(policy: RetryPolicy) -> RetryPolicy:
    """Return the policy if it can work; raise DefinitionError, naming the option, if not."""
    _check_max_retries(policy.max_retries)
    if not callable(policy.backoff):
        _check_backoff(policy.backoff)
    for option in ("retry_on", "no_retry_on"):
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in getattr(policy, option)):
            raise DefinitionError(f"{option} must be an exception class or a tuple of them")
    return policy


def _check_max_retries(max_retries: object) -> None:
    if not isinstance(max_retries, int) or isinstance(max_retries, bool) or not 0 <= max_retries <= 10_000:
        raise DefinitionError(f"max_retries must be a whole number from 0 to 10 000, not {max_retries!r}")


def _check_backoff(backoff: tuple[float, float]) -> None:
    if not isinstance(backoff, tuple | list) or len(backoff) != 2:
        raise DefinitionError(f"backoff must be (shortest, longest) in seconds, or a function, not {backoff!r}")
    if not all(isinstance(number, int | float) for number in backoff):
        raise DefinitionError(f"backoff must be two numbers of seconds, not {backoff!r}")
    shortest, longest = backoff
    if not 0 <= shortest <= longest <= LONGEST_DELAY.total_seconds():
        raise DefinitionError(f"backoff must be 0 ≤ shortest ≤ longest ≤ a year, not {backoff!r}")
