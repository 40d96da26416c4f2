"""Failpoints that need a database: a transaction that is there only when asked for, and a line that is cut."""

from __future__ import annotations

import pytest
from django.db import OperationalError, connection

from catbird_django.failpoints import FailpointReached, functions_for

pytestmark = pytest.mark.django_db(transaction=True)


def armed(specification: str):
    return functions_for({"CATBIRD_TESTING": "1", "CATBIRD_FAILPOINT": specification})


def test_what_was_done_before_the_point_is_not_committed() -> None:
    _, before_commit = armed("in-sweep:raise")

    with pytest.raises(FailpointReached), before_commit("in-sweep", "default"):
        assert connection.in_atomic_block

    assert not connection.in_atomic_block


def test_a_point_that_is_not_armed_opens_no_transaction() -> None:
    _, before_commit = armed("in-sweep:raise")

    with before_commit("in-cancel", "default"):
        assert not connection.in_atomic_block


def test_a_dropped_connection_fails_as_a_cut_line_does() -> None:
    reach, _ = armed("before-settle:drop-connection")
    connection.ensure_connection()

    reach("before-settle")

    with pytest.raises(OperationalError), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    connection.close()
