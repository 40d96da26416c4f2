"""Turns the clock of a test's database: the one function that decides what is due (R7, X4a).

It is replaced by DDL, in the transaction of the test if it has one, and then rolled back with everything else. Nothing
is kept in this process: how far the clock is ahead, the database itself can tell.
"""

from __future__ import annotations

from datetime import timedelta
from importlib import resources
from types import TracebackType
from typing import Any

from django.db import connections
from django.db.models.signals import post_migrate

from catbird_django.testing.guard import alias_of_tests
from catbird_django.testing.savepoints import is_broken

PLAIN = "pg_catalog.statement_timestamp()"
NAME = "FUNCTION _cb_now()"
NOTHING = timedelta(0)

_turned_for_good: set[str] = set()


class TurnedClock:
    """The clock as `turn_clock` has left it. As a context manager it puts it back, at the end of the block."""

    def __init__(self, before: timedelta, *, using: str) -> None:
        self._before = before
        self._using = using

    def __enter__(self) -> TurnedClock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not is_broken(self._using):  # or the transaction is rolled back, and the clock with it
            _set_ahead(self._before, self._using)


def turn_clock(
    by: timedelta = NOTHING,
    *,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    using: str | None = None,
) -> TurnedClock:
    """Let time pass for the database, now: leases, delays, retries, deadlines and expiries follow its clock.

    Inside a test's transaction it is undone with it. Elsewhere use it as a context manager, or call `restore_clock()`;
    Django's TransactionTestCase, which empties the database after each test, does that for you. Python's own clock is
    not turned. Raise ValueError for a clock that would go back, and OnlyInTests for a database not made for tests.
    """
    using = alias_of_tests(using)
    by += timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if by <= NOTHING:
        raise ValueError(f"the clock goes forward only, not by {by}; restore_clock() and `with turn_clock(…)` undo it")
    before = _read_ahead(using)
    if not connections[using].in_atomic_block:
        _restore_after_flush(using)
    _set_ahead(before + by, using)
    return TurnedClock(before, using=using)


def restore_clock(*, using: str | None = None) -> None:
    """Let the clock of the database go right again."""
    _set_ahead(NOTHING, alias_of_tests(using))


def _read_ahead(using: str) -> timedelta:
    """How far the clock is ahead."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT _cb_now() - pg_catalog.statement_timestamp()")
        ahead: timedelta = cursor.fetchone()[0]
    return ahead


def _set_ahead(ahead: timedelta, using: str) -> None:
    definition = (resources.files("catbird_django") / "sql" / "clock.sql").read_text(encoding="utf-8")
    if ahead:
        turned = f"{PLAIN} OPERATOR(pg_catalog.+) interval '{ahead // timedelta(microseconds=1)} microseconds'"
        definition = definition.replace(PLAIN, turned)
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT pronamespace::regnamespace::text FROM pg_proc WHERE oid = '_cb_now'::regproc")
        [schema] = cursor.fetchone()
        cursor.execute(definition.replace(NAME, f"FUNCTION {schema}._cb_now()"))


def _restore_after_flush(using: str) -> None:
    """Put the clock back when Django empties the database, as it does after each test without a transaction."""
    _turned_for_good.add(using)
    post_migrate.connect(_flushed, dispatch_uid="catbird.testing.clock")


def _flushed(*, using: str, **_: Any) -> None:
    if using in _turned_for_good:
        _turned_for_good.discard(using)
        _set_ahead(NOTHING, using)
