"""Durations in words."""

from __future__ import annotations

from datetime import timedelta

import pytest

from catbird_django.monitoring.durations import in_one_unit, in_words


@pytest.mark.parametrize(
    ("duration", "words"),
    [
        (timedelta(0), "0 ms"),
        (timedelta(milliseconds=312), "312 ms"),
        (timedelta(microseconds=999_999), "999 ms"),
        (timedelta(seconds=4.25), "4.2 s"),
        (timedelta(seconds=59.99), "59.9 s"),
        (timedelta(minutes=3, seconds=5), "3 min 5 s"),
        (timedelta(hours=2, minutes=10, seconds=59), "2 h 10 min"),
        (timedelta(days=4, hours=3), "4 d 3 h"),
    ],
)
def test_two_units_are_enough(duration: timedelta, words: str) -> None:
    assert in_words(duration) == words


def test_a_clock_that_went_back_shows_no_negative_time() -> None:
    assert in_words(timedelta(seconds=-3)) == "0 ms"


@pytest.mark.parametrize(
    ("duration", "words"),
    [
        (timedelta(0), "0 s"),
        (timedelta(milliseconds=1500), "1.5 s"),
        (timedelta(seconds=90), "90 s"),
        (timedelta(minutes=5), "5 min"),
        (timedelta(hours=36), "36 h"),
        (timedelta(days=2), "2 d"),
    ],
)
def test_one_unit_is_exact_and_brief(duration: timedelta, words: str) -> None:
    assert in_one_unit(duration) == words
