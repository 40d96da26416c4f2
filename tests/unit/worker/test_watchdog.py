"""T8: a sync handler is interrupted in time, at most once, and never after it has ended."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from catbird_django.engine.tasks import TaskClaim
from catbird_django.errors import HandlerTimeout
from catbird_django.worker.watchdog import Abandoned, Attempt, Watchdog
from tests.support import until

CLAIM = TaskClaim(1, uuid4(), "default", 1, 0, "null", None, 1, 0, 0)


@pytest.fixture
def abandoned() -> list[Attempt]:
    return []


@pytest.fixture
def watchdog(abandoned: list[Attempt]) -> Iterator[Watchdog]:
    dog = Watchdog(grace=timedelta(seconds=0.2), abandoned=abandoned.append)
    dog.start()
    yield dog
    dog.stop()


def spin(seconds: float) -> None:
    """Busy in Python, so that an exception can be raised at any moment."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def attempt_of(watchdog: Watchdog, timeout: float, seconds: float) -> str:
    """What the executor does around a handler, and how it went."""
    attempt = Attempt(CLAIM, timedelta(seconds=timeout))
    try:
        try:
            watchdog.watch(attempt)
            spin(seconds)
        finally:
            watchdog.end(attempt)
    except HandlerTimeout:
        watchdog.end(attempt)
        return "interrupted"
    return "returned"


def test_a_handler_that_takes_too_long_is_interrupted(watchdog: Watchdog) -> None:
    assert attempt_of(watchdog, timeout=0.05, seconds=10) == "interrupted"


def test_a_handler_that_is_quick_is_left_alone(watchdog: Watchdog) -> None:
    assert attempt_of(watchdog, timeout=10, seconds=0.01) == "returned"
    spin(0.05)


@pytest.fixture
def _threads_take_turns_often() -> Iterator[None]:
    """By default the one that looks would not get its turn within the few milliseconds that an attempt lasts here."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_threads_take_turns_often")
def test_an_interrupt_never_strikes_after_the_end() -> None:
    """Attempts that end just when their time is over: what comes after them runs undisturbed."""
    gone: list[Attempt] = []
    watchdog = Watchdog(grace=timedelta(seconds=30), abandoned=gone.append)
    watchdog.start()
    answers = set()
    for number in range(600):
        timeout = 0.001 + (number % 10) * 0.0002
        answers.add(attempt_of(watchdog, timeout=timeout, seconds=0.002))
        spin(0.0005)  # here a stray interrupt would strike, outside of any attempt
    watchdog.stop()

    assert answers == {"interrupted", "returned"}
    assert gone == []


def test_whoever_swallows_the_interrupt_and_goes_on_is_abandoned_and_told_so(
    watchdog: Watchdog, abandoned: list[Attempt]
) -> None:
    told = threading.Event()
    release = threading.Event()

    def handler() -> None:
        attempt = Attempt(CLAIM, timedelta(seconds=0.05))
        watchdog.watch(attempt)
        while not release.is_set():
            try:
                spin(0.01)
            except HandlerTimeout:
                continue
        try:
            watchdog.end(attempt)
        except Abandoned:
            told.set()

    thread = threading.Thread(target=handler, daemon=True)
    thread.start()
    until(lambda: abandoned)
    release.set()

    assert told.wait(10)
    assert [attempt.thread for attempt in abandoned] == [thread]


def test_an_earlier_deadline_wakes_the_watchdog(watchdog: Watchdog) -> None:
    late = Attempt(CLAIM, timedelta(seconds=3600))
    watchdog.watch(late)

    assert attempt_of(watchdog, timeout=0.05, seconds=10) == "interrupted"
    watchdog.end(late)
