"""What integration tests share: tasks that are forgotten afterwards, and scratch databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.db import connection, connections
from pytest_django.plugin import DjangoDbBlocker

from catbird_django.client import waiting
from catbird_django.definitions.registry import registry


@pytest.fixture(autouse=True)
def _only_the_tasks_of_the_test() -> Iterator[None]:
    with registry.isolated():
        registry.tasks.clear()
        yield


@pytest.fixture(autouse=True)
def _watchers_of_other_tests_are_gone() -> None:
    """What they have told the database was flushed; they stay a while, and would not tell it again."""
    waiting._watches.clear()


ScratchDatabase = Callable[..., str]


@pytest.fixture
def scratch_database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[ScratchDatabase]:
    """Make an empty database under an alias of its own, which is gone after the test.

    Without `db`: Django's test cases allow only the aliases that were there when they began.
    """
    with django_db_blocker.unblock(), ExitStack() as databases:
        yield lambda alias, **options: databases.enter_context(_database(alias, **options))


@contextmanager
def _database(alias: str, *, search_path: str | None = None) -> Iterator[str]:
    name = f"{connection.settings_dict['NAME']}_{alias}"
    _execute(f'CREATE DATABASE "{name}"')
    settings: dict[str, Any] = {**connection.settings_dict, "NAME": name, "OPTIONS": {}}
    if search_path is not None:
        settings["OPTIONS"] = {"options": f"-c search_path={search_path.replace(' ', chr(92) + ' ')}"}
    connections.databases[alias] = settings
    try:
        yield alias
    finally:
        connections[alias].close()
        del connections.databases[alias]
        delattr(connections._connections, alias)
        _execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
