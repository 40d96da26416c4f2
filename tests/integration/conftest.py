"""What integration tests share: tasks and flows that are forgotten afterwards, and scratch databases."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections
from pytest_django.plugin import DjangoDbBlocker

from catbird_django.client import waiting
from catbird_django.definitions.registry import registry
from tests.examples import importing_from


@pytest.fixture(autouse=True)
def _only_the_tasks_of_the_test(_django_db_marker: None) -> Iterator[None]:
    """Inside of the database's fixture: emptying it registers what is declared, and this is over by then."""
    with registry.isolated():
        registry.tasks.clear()
        registry.flows.clear()
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


@pytest.fixture
def example() -> Iterator[Any]:
    """Import modules of the example; they and their tasks are forgotten afterwards."""
    with importing_from("first_task", "pages", "accounts", "shop", "press") as import_module:
        yield import_module


@pytest.fixture
def work_until_idle() -> Iterator[Any]:
    """Run a worker as the command does, until there is nothing left to do."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield lambda: call_command("catbird_worker", until_idle=True)
    for number, handler in handlers.items():
        signal.signal(number, handler)
