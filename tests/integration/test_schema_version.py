"""W8: a worker and the SQL that it calls agree on their versions, or the worker does not start."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from catbird_django import task
from catbird_django.models import TaskRun, Worker
from catbird_django.statuses import TaskStatus
from tests.support import work_off

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def _declared_version(request: pytest.FixtureRequest) -> object:
    """Let the database say that its SQL is of another version; it is put right afterwards."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_functiondef('cb_schema_version()'::regprocedure)")
        [ours] = cursor.fetchone()
        cursor.execute(
            "CREATE OR REPLACE FUNCTION cb_schema_version() RETURNS text LANGUAGE sql IMMUTABLE"
            f" AS $$ SELECT '{request.param}' $$"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute(ours)


@pytest.mark.usefixtures("_declared_version")
@pytest.mark.parametrize("_declared_version", ["0001_before"], indirect=True)
def test_a_worker_does_not_start_on_older_sql() -> None:
    @task
    def mail() -> None: ...

    with pytest.raises(CommandError, match=r"the SQL of 0001_before, but this code needs .* run `manage\.py migrate"):
        call_command("catbird_worker", until_idle=True)

    assert not Worker.objects.exists()


@pytest.mark.usefixtures("_declared_version")
@pytest.mark.parametrize("_declared_version", ["9999_after"], indirect=True)
def test_a_worker_works_on_newer_sql() -> None:
    """As in a rolling deploy: first migrate, then restart one worker after the other."""

    @task
    def mail() -> None: ...

    handle = mail.run()
    work_off("mail")

    assert handle.status() is TaskStatus.COMPLETED
    assert TaskRun.objects.count() == 1
