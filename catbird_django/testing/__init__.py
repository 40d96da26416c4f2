"""For the tests of applications: run tasks and flows in the test itself, turn the clock, let things fail.

What is importable from here is public. All of it refuses to work on anything but the database of a test.
"""

from catbird_django.testing.assertions import assert_completed, assert_failed, assert_status
from catbird_django.testing.clock import TurnedClock, restore_clock, turn_clock
from catbird_django.testing.guard import OnlyInTests
from catbird_django.testing.inline import NeverIdle, OtherWorker, work_until_idle
from catbird_django.testing.report import Attempt, Ran
from catbird_django.testing.savepoints import BrokenTransaction
from catbird_django.testing.simulate import simulate
from catbird_django.testing.substitutes import Substitute, failing, replaced

__all__ = [
    "Attempt",
    "BrokenTransaction",
    "NeverIdle",
    "OnlyInTests",
    "OtherWorker",
    "Ran",
    "Substitute",
    "TurnedClock",
    "assert_completed",
    "assert_failed",
    "assert_status",
    "failing",
    "replaced",
    "restore_clock",
    "simulate",
    "turn_clock",
    "work_until_idle",
]
