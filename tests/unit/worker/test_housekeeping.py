"""W6, W9: what is kept up without hurry, and when. The database is asked only when there is something to do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from catbird_django.conf import Settings
from catbird_django.engine import housekeeping as engine
from catbird_django.engine.housekeeping import DeadRows
from catbird_django.worker import housekeeping
from catbird_django.worker.housekeeping import LOOK_AROUND_EVERY, MANY, NEVER, PAUSE, House, Retention, Vacuum
from catbird_django.worker.patience import patience_of_calls, patience_of_renewals
from catbird_django.worker.wakeups import PING_EVERY


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Table:
    """A stand-in for the table of runs, as VACUUM sees it."""

    def __init__(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dead, self.may, self.takes, self.is_stuck, self.vacuums = 0, True, 0.1, False, 0
        self._clock = clock
        monkeypatch.setattr(housekeeping.engine, "count_dead_rows", lambda using: DeadRows(self.dead, self.may))
        monkeypatch.setattr(housekeeping.engine, "vacuum_runs", self._vacuum)

    def _vacuum(self, using: str) -> None:
        self.vacuums += 1
        self._clock.now += self.takes
        if not self.is_stuck:
            self.dead = 0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Table:
    return Table(clock, monkeypatch)


def test_few_dead_rows_are_left_to_autovacuum(clock: Clock, table: Table) -> None:
    vacuum = Vacuum(using="default", clock=clock)

    vacuum.noticed(MANY - 1)
    vacuum.settled(MANY - 1)

    assert vacuum.due_at == NEVER


def test_what_this_worker_settles_counts_at_once_and_there_is_a_second_between_two(clock: Clock, table: Table) -> None:
    """The statistics of the server lag behind a worker at full speed."""
    vacuum = Vacuum(using="default", clock=clock)
    vacuum.settled(MANY)
    assert vacuum.due_at <= clock()

    vacuum.act()
    assert vacuum.due_at == NEVER
    vacuum.settled(MANY)

    assert vacuum.due_at == pytest.approx(clock() + PAUSE)


def test_a_slow_vacuum_has_a_quarter_of_the_time_at_most(clock: Clock, table: Table) -> None:
    table.takes = 20
    vacuum = Vacuum(using="default", clock=clock)
    vacuum.settled(MANY)

    vacuum.act()
    vacuum.settled(MANY)

    assert vacuum.due_at == pytest.approx(clock() + 60)


def test_while_dead_rows_cannot_be_removed_it_tries_less_and_less_often(clock: Clock, table: Table) -> None:
    table.dead, table.is_stuck = 5 * MANY, True
    vacuum = Vacuum(using="default", clock=clock)
    vacuum.noticed(table.dead)
    pauses = []

    for _ in range(8):
        vacuum.act()
        pauses.append(round(vacuum.due_at - clock()))

    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]


def test_a_role_that_may_not_vacuum_is_told_once(clock: Clock, table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """W9: skipped quietly."""
    table.may = False
    vacuum = Vacuum(using="default", clock=clock)

    for _ in range(3):
        vacuum.settled(MANY)
        vacuum.act()

    assert table.vacuums == 0
    assert caplog.text.count("may not VACUUM") == 1
    vacuum.settled(MANY)
    assert vacuum.due_at > clock() + 1000


def passes(monkeypatch: pytest.MonkeyPatch, clock: Clock, *answers: tuple[int, int | None], took: float) -> list[int]:
    left, asked = list(answers), []

    def apply(retention: Any, *, after_id: int, **_: Any) -> tuple[int, int | None]:
        asked.append(after_id)
        clock.now += took
        return left.pop(0)

    monkeypatch.setattr(housekeeping, "apply_retention", apply)
    return asked


def test_retention_goes_through_all_runs_and_rests(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """T15: in small transactions, with a quarter of the time at most; from the beginning again after a rest."""
    asked = passes(monkeypatch, clock, (1000, 1000), (0, 2000), (5, None), (0, None), took=0.1)
    retention = Retention(timedelta(days=1), using="default", clock=clock)
    rests = []

    for _ in range(4):
        retention.act()
        rests.append(round(retention.due_at - clock(), 1))

    assert asked == [0, 1000, 2000, 0]
    assert rests == [0.3, 0.3, 60, 600]


def test_old_transactions_are_warned_of_once_a_minute(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """W9: they are what makes claims slow."""
    found = engine.House([], 2, timedelta(minutes=5))
    monkeypatch.setattr(housekeeping.engine, "keep_house", lambda **_: found)
    house = House(worker_ttl=timedelta(minutes=5), using="default", clock=clock)

    house.act()

    assert "open for more than a minute" in caplog.text
    assert house.due_at == clock() + 60


def test_an_idle_worker_makes_no_more_than_one_statement_in_two_seconds() -> None:
    """W6, G9: even the one that does the upkeep for all."""
    defaults = Settings()
    seconds_between = {
        "look for work": defaults.idle_poll_interval.total_seconds(),
        "tick": defaults.sweep_interval.total_seconds(),
        "renew the worker's row": defaults.worker_ttl.total_seconds() / 5,
        "ping": PING_EVERY,
        "look around": LOOK_AROUND_EVERY,
        "retention": housekeeping.PAUSE_AFTER_NOTHING,
    }

    assert sum(1 / seconds for seconds in seconds_between.values()) <= 0.5


@pytest.mark.parametrize(("lease", "calls", "renewals"), [(30, 20, 10), (600, 20, 20), (3, 5, 1), (12, 8, 4)], ids=str)
def test_a_silent_connection_is_given_up_in_time_to_keep_what_is_held(
    lease: int, calls: float, renewals: float
) -> None:
    """RELIABILITY row 20: within half a minute, and leases before they run out."""
    assert patience_of_calls(timedelta(seconds=lease)) == pytest.approx(calls)
    assert patience_of_renewals(timedelta(seconds=lease)) == pytest.approx(renewals)
