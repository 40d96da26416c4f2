"""What all tests share: a database that is surely dropped, its address for other processes, and a place for them."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import pytest
from django.db import connection

from catbird_django.definitions.registry import registry
from project.database import why_unusable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.plugin import DjangoDbBlocker


def pytest_collection_finish() -> None:
    """Forget tasks of tests' own modules: imported by one test, they would be in the registry and database of all.

    And flows of the demo: tests of flows count what is in the database.
    """
    for name in [name for name, task in registry.tasks.items() if task.path.startswith("tests.")]:
        del registry.tasks[name]
    for name in [name for name, flow in registry.flows.items() if flow.module.startswith("project.")]:
        del registry.flows[name]


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, django_db_blocker: DjangoDbBlocker
) -> None:
    """Before the test database is made: end with one line if there is no server, and sweep up after killed runs."""
    with django_db_blocker.unblock():
        if complaint := why_unusable(connection):
            pytest.exit(complaint, returncode=1)
        drop_databases_of_dead_runs()
        connection.close()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Put out other sessions at the end: one that still listens would keep the test database from being dropped."""
    yield
    with django_db_blocker.unblock():
        connection.close()  # it may have been put out itself, by a test of such trouble
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        connection.close()  # nor may we stay: under a browser's event loop ours is not the one that Django closes


@pytest.fixture
def database_url(transactional_db: None) -> str:
    """DATABASE_URL of the test database, for a process started by the test; it sees only what is committed."""
    return url_of(connection.get_connection_params())


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that the server's account can enter, unlike pytest's own when root runs the tests."""
    directory = Path(tempfile.mkdtemp(prefix="catbird-tests-", dir=quick_place()))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def quick_place() -> str:
    """Memory where there is plenty of it: making clusters is mostly waiting for the disk."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > 2**30 else "/tmp"


def url_of(parameters: dict[str, object]) -> str:
    """Write connection parameters as a URL that django-environ reads; a socket's directory goes into the query."""
    user = ":".join(quote(str(parameters[name]), safe="") for name in ("user", "password") if parameters.get(name))
    rest = {name: str(parameters[name]) for name in ("host", "port") if parameters.get(name)}
    return f"postgresql://{user}@/{parameters['dbname']}?{urlencode(rest)}"


def drop_databases_of_dead_runs() -> None:
    """Drop what killed runs left in the embedded cluster; on a server of the user's own we cannot know who lives."""
    if "EMBEDDED" not in connection.settings_dict:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database WHERE datname ~ '^test_catbird_[0-9]+'")
        for (name,) in cursor.fetchall():
            if not is_alive(int(re.findall(r"\d+", name)[0])):
                cursor.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
