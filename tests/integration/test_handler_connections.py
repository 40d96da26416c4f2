"""W7: what a handler leaves on Django's connection, the next one does not meet."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, connections
from django.db.models.functions import Now
from psycopg import sql

from catbird_django import task
from catbird_django.models import Worker
from tests.support import work_off

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default Django closes them after each use, and with them goes everything."""
    monkeypatch.setitem(connections.databases["default"], "CONN_MAX_AGE", None)


def backends_of(first_does: list[Any]) -> list[int]:
    """Run these statements in one handler, then look twice on the same thread; return the sessions that were used."""
    sessions: list[int] = []

    @task
    def use(input: bool) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid(), count(*) FROM cb_tasks")
            sessions.append(cursor.fetchone()[0])
            for statement in first_does if input else []:
                cursor.execute(statement)

    handles = [use.run(True), use.run(False), use.run(False)]
    work_off("use", concurrency=1)
    assert [str(handle.status()) for handle in handles] == ["completed"] * 3
    return sessions


@pytest.mark.parametrize(
    "statement",
    [
        "SET search_path = nowhere",
        "set statement_timeout = '1ms'",
        "SET SESSION ROLE pg_read_all_data",
        "SELECT set_config('search_path', 'nowhere', false)",
        "SELECT pg_advisory_lock(7)",
        "BEGIN",
        sql.SQL("SET search_path = {}").format(sql.Identifier("nowhere")),
    ],
)
def test_a_session_that_a_handler_has_changed_is_not_given_to_the_next(statement: Any) -> None:
    first, second, third = backends_of([statement])

    assert first != second
    assert second == third


def test_a_session_that_was_only_used_is_kept() -> None:
    plain = [
        "UPDATE cb_tasks SET queue = queue",
        "SELECT 'SET x'",
        "BEGIN",
        "SET LOCAL lock_timeout = 1",
        "COMMIT",
        "SELECT answer FROM set_config('lock_timeout', '1', true) AS answer",
    ]

    assert len(set(backends_of(plain))) == 1


def test_a_session_with_which_a_sleeping_worker_was_woken_is_kept() -> None:
    sessions: list[int] = []

    @task
    def leaf() -> None: ...

    @task
    def start_another() -> None:
        Worker.objects.update(sleeping_since=Now())
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            sessions.append(cursor.fetchone()[0])
        leaf.run()

    start_another.run_many([None] * 3)
    work_off("start_another", concurrency=1)

    assert len(sessions) == 3
    assert len(set(sessions)) == 1
