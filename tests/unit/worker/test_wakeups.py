"""R9, W6: LISTEN counts as alive only while a worker hears its own pings."""

from __future__ import annotations

from catbird_django.worker.wakeups import PING_EVERY, PING_TAKES, SelfTest


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_it_begins_with_a_ping_and_has_not_passed_before_it_was_heard() -> None:
    test = SelfTest(Clock())

    assert test.is_due()
    test.sent()
    assert not test.has_passed
    test.heard()
    assert test.has_passed


def test_a_ping_that_does_not_arrive_within_seconds_has_failed() -> None:
    clock = Clock()
    test = SelfTest(clock)
    test.sent()

    clock.now += PING_TAKES - 0.1
    assert not test.has_failed()
    clock.now += 0.2
    assert test.has_failed()


def test_the_next_ping_is_due_only_after_a_while_and_a_dead_line_is_noticed_within_half_a_minute() -> None:
    """RELIABILITY row 20."""
    clock = Clock()
    test = SelfTest(clock)
    test.sent()
    test.heard()

    assert not test.is_due()
    assert not test.has_failed()
    clock.now += PING_EVERY
    assert test.is_due()
    assert PING_EVERY + PING_TAKES < 30
