"""T7: which failures are tried again, and after how long."""

from datetime import timedelta
from typing import Any

import pytest

from catbird_django import DefinitionError, task
from catbird_django.definitions.retry import LONGEST_DELAY, RetryPolicy, as_delay


def handler() -> None: ...


def test_without_retries_nothing_is_tried_again() -> None:
    assert RetryPolicy().delay_after(ValueError(), 0) is None


def test_only_as_many_as_allowed() -> None:
    policy = RetryPolicy(max_retries=2)

    assert [policy.delay_after(ValueError(), failures) is not None for failures in range(4)] == [
        True,
        True,
        False,
        False,
    ]


def test_delays_grow_with_full_jitter_between_shortest_and_longest() -> None:
    policy = RetryPolicy(max_retries=1000, backoff=(1, 60))

    for failures in (0, 1, 3, 10, 999):
        delays = [policy.delay_after(ValueError(), failures) for _ in range(200)]
        seconds = [delay.total_seconds() for delay in delays if delay is not None]
        assert min(seconds) >= 1
        assert max(seconds) <= min(60, 2 ** (failures + 1))
        assert len(set(seconds)) > 100


def test_a_function_may_decide() -> None:
    policy = RetryPolicy(max_retries=5, backoff=lambda failures: failures * 10)

    assert policy.delay_after(ValueError(), 2) == timedelta(seconds=30)


def test_some_exceptions_are_worth_it_and_some_are_not() -> None:
    policy = RetryPolicy(max_retries=5, retry_on=(OSError,), no_retry_on=(FileNotFoundError,))

    assert policy.delay_after(ConnectionError(), 0) is not None
    assert policy.delay_after(FileNotFoundError(), 0) is None
    assert policy.delay_after(ValueError(), 0) is None


def test_an_exit_is_not_worth_it_by_default() -> None:
    assert RetryPolicy(max_retries=5).delay_after(SystemExit(), 0) is None


@pytest.mark.parametrize(("given", "delay"), [(-5, timedelta(0)), (1.5, timedelta(seconds=1.5)), (1e9, LONGEST_DELAY)])
def test_a_delay_stays_within_reason(given: float, delay: timedelta) -> None:
    assert as_delay(given) == delay


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": 1.5}, "max_retries"),
        ({"max_retries": True}, "max_retries"),
        ({"backoff": (5, 1)}, "backoff"),
        ({"backoff": (-1, 1)}, "backoff"),
        ({"backoff": 3}, "backoff"),
        ({"backoff": ("1", "2")}, "backoff"),
        ({"retry_on": "ValueError"}, "retry_on"),
        ({"no_retry_on": (ValueError, 3)}, "no_retry_on"),
        ({"max_lost": -1}, "max_lost"),
    ],
)
def test_a_bad_option_is_refused_at_once_and_named(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DefinitionError, match=complaint):
        task(**options)(handler)


def test_an_unknown_option_comes_with_a_suggestion() -> None:
    with pytest.raises(TypeError, match="did you mean 'max_retries'"):
        task(max_retrys=3)(handler)  # type: ignore[call-overload] # on purpose
