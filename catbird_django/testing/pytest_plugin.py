"""Fixtures for pytest, beside pytest-django: `work_until_idle` and `turn_clock`.

Installed with the package; `-p catbird_django.testing.pytest_plugin` names it where entry points are switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from catbird_django import testing


@pytest.fixture
def work_until_idle(db: None) -> Callable[..., testing.Ran]:  # noqa: ARG001 - as on the next: pytest reads it
    """Run everything that is due, in the test itself; what `catbird_django.testing.work_until_idle` is."""
    return testing.work_until_idle


@pytest.fixture
def turn_clock(db: None) -> Iterator[Callable[..., testing.TurnedClock]]:  # noqa: ARG001
    """Turn the clock of the database, until the test is over; as `catbird_django.testing.turn_clock` otherwise."""
    clocks: list[testing.TurnedClock] = []

    def turn(*by: Any, **units: Any) -> testing.TurnedClock:
        clocks.append(testing.turn_clock(*by, **units))
        return clocks[-1]

    yield turn
    for clock in reversed(clocks):
        clock.__exit__(None, None, None)
