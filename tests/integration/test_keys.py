"""T4a: keys, as an application uses them; tests/sql/test_dedup.py has the races."""

from __future__ import annotations

from typing import Any

import pytest

from catbird_django import (
    InvalidOption,
    task,
)
from tests.support import work_off

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_key_gives_the_handle_of_the_run_that_has_it() -> None:
    """T4a."""

    @task
    def charge(input: int) -> int:
        return input

    first, second = charge.run(1, concurrency_key="order-1"), charge.run(2, concurrency_key="order-1")
    work_off("charge")
    third = charge.run(3, concurrency_key="order-1")
    once, again = charge.run(4, idempotency_key="e-1"), charge.run(5, idempotency_key="e-1")
    work_off("charge")

    assert first.id == second.id != third.id
    assert second.wait(timeout=5) == 1
    assert once.id == again.id
    assert again.wait(timeout=5) == 4
    assert charge.run(6, idempotency_key="e-1").id == once.id


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency_key": ""},
        {"concurrency_key": 7},
        {"idempotency_key": "x" * 513},
        {"idempotency_key": "a\x00b"},
        {"concurrency_key": "a", "idempotency_key": "b"},
    ],
)
def test_a_bad_key_is_refused_before_sql(options: dict[str, Any]) -> None:
    @task
    def charge() -> None: ...

    with pytest.raises(InvalidOption, match="_key: "):
        charge.run(**options)


def test_a_key_for_many_runs_is_refused() -> None:
    @task
    def charge(input: int) -> None: ...

    with pytest.raises(InvalidOption, match="names one run"):
        charge.run_many([1, 2], concurrency_key="k")
