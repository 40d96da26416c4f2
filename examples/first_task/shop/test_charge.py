"""Tests in the style of pytest; `work_until_idle` and `turn_clock` are fixtures that catbird_django brings along."""

from datetime import timedelta
from typing import Any

from catbird_django.testing import assert_completed, failing, simulate
from shop.tasks import charge


def test_a_bank_that_is_away_is_tried_again(work_until_idle: Any, turn_clock: Any) -> None:
    run = charge.run(7)
    with failing("charge", ConnectionError("the bank is away"), times=1):
        assert work_until_idle().outcomes == ["retrying"]

    turn_clock(minutes=10)

    assert work_until_idle().names == ["charge"]
    assert assert_completed(run) == "order 7 charged at attempt 2"


def test_a_bank_may_be_away_five_times(db: None) -> None:
    run = charge.run(8)

    with failing("charge", ConnectionError("the bank is away"), times=5):
        ran = simulate(run)

    assert ran.outcomes == ["retrying"] * 5 + ["completed"]
    assert ran.passed < timedelta(hours=1)
    assert assert_completed(run) == "order 8 charged at attempt 6"
