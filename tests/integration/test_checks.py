"""System checks, by id."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.checks import Error, run_checks
from django.db import connection, connections, transaction

from catbird_django import discovery, task
from catbird_django.checks import check_database, check_definitions, check_settings
from catbird_django.client.flows import Flow
from catbird_django.discovery import BrokenModule
from catbird_django.models import TaskRun


def ids(messages: list[Any]) -> list[str]:
    return [message.id for message in messages]


def test_the_host_project_has_nothing_to_complain_about() -> None:
    assert run_checks() == []


@pytest.mark.django_db
def test_a_migrated_database_has_nothing_to_complain_about() -> None:
    assert check_database(databases=["default"]) == []


def test_the_database_is_asked_only_when_it_is_named(django_assert_num_queries: Any) -> None:
    assert check_database(databases=[]) == check_database() == []


def test_e001_a_database_that_is_not_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "vendor", "sqlite")

    [message] = check_settings()

    assert message.id == "catbird.E001"
    assert "'default' is sqlite" in message.msg


@pytest.mark.django_db
def test_e002_a_postgresql_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "pg_version", 140_005, raising=False)

    [message] = check_database(databases=["default"])

    assert message.id == "catbird.E002"
    assert "is 14" in message.msg


@pytest.mark.django_db
def test_e003_functions_that_are_missing_although_the_migration_is_recorded() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION cb_schema_version()")
        found = asked_in_savepoint()
        transaction.set_rollback(True)

    assert ids(found) == ["catbird.E003"]
    assert "migrate catbird" in found[0].hint


def asked_in_savepoint() -> list[Any]:
    """The question for a missing function breaks the transaction it is asked in."""
    return check_database(databases=["default"])


@pytest.mark.django_db
def test_w001_a_pending_migration_is_a_warning_because_migrate_stops_at_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catbird_django.checks.expected_version", lambda: "0099_future")

    [message] = check_database(databases=["default"])

    assert message.id == "catbird.W001"
    assert not message.is_serious()


def test_e004_and_e005_bad_settings(settings: Any) -> None:
    settings.CATBIRD = {"LEASES": 3, "LEASE": 0}

    assert ids(check_settings()) == ["catbird.E004", "catbird.E005"]


def test_e006_two_tasks_of_one_name() -> None:
    """T1: both places are named."""

    @task(name="mail")
    def first() -> None: ...

    @task(name="mail")
    def second() -> None: ...

    [message] = check_definitions()

    assert message.id == "catbird.E006"
    assert message.msg.count("test_checks.py:") == 2


@pytest.fixture
def broken_module() -> Iterator[None]:
    discovery.broken_modules.append(BrokenModule("shop.tasks", "ImportError: no stripe"))
    yield
    discovery.broken_modules.clear()


@pytest.mark.usefixtures("broken_module")
def test_e007_a_module_that_cannot_be_imported() -> None:
    [message] = check_definitions()

    assert message.id == "catbird.E007"
    assert message.msg == "shop.tasks cannot be imported: ImportError: no stripe"


def test_e008_a_type_that_cannot_be_used() -> None:
    @task
    def charge(input: "Nowhere") -> None: ...  # type: ignore[name-defined] # noqa: F821

    [message] = check_definitions()

    assert isinstance(message, Error)
    assert message.id == "catbird.E008"


def test_e009_two_flows_of_one_name() -> None:
    """T1, F2: both places are named."""
    Flow("order").step(name="ship")(lambda: None)
    Flow("order").step(name="ship")(lambda: None)

    [message] = check_definitions()

    assert message.id == "catbird.E009"
    assert message.msg.count("test_checks.py:") == 2


def test_e010_and_e011_a_flow_that_cannot_work_one_message_for_each_problem() -> None:
    """F2: with file and line, at the level of an error, and without raising."""
    flow = Flow("order")

    @flow.step
    def validate(inputt: int) -> int: ...

    @flow.step
    def ship(validate: str) -> None: ...

    found = check_definitions()

    assert ids(found) == ["catbird.E010", "catbird.E011"]
    assert all(isinstance(message, Error) and "test_checks.py:" in message.msg for message in found)
    assert "has no such step" in found[0].msg
    assert found[1].msg.endswith("step 'ship' takes validate: str, but 'validate' returns int")
    assert f"declared at {flow.draft.location}" in found[1].hint


def test_w002_a_flow_that_answers_failures_with_an_unknown_task() -> None:
    Flow("order", on_fail="nobody").step(name="ship")(lambda: None)

    [message] = check_definitions()

    assert message.id == "catbird.W002"
    assert "on_fail of flow 'order' names 'nobody'" in message.msg


class Elsewhere:
    """A database router."""

    def db_for_write(self, model: Any, **_: Any) -> str | None:
        return "elsewhere" if model is TaskRun else None


def test_w003_an_atomic_step_whose_app_writes_to_another_database(settings: Any) -> None:
    """F22."""

    def writing(module: str) -> Any:
        def handler() -> None: ...

        handler.__module__ = module
        return handler

    flow = Flow("order")
    flow.step(name="careful", atomic=True)(writing("catbird_django.flows"))
    flow.step(name="careless")(writing("catbird_django.flows"))
    flow.step(name="foreign", atomic=True)(writing("nobody.flows"))
    assert check_definitions() == []
    settings.DATABASE_ROUTERS = ["tests.integration.test_checks.Elsewhere"]

    [message] = check_definitions()

    assert message.id == "catbird.W003"
    assert (
        "step 'careful' is atomic on database 'default', but its app writes catbird.TaskRun to another" in message.msg
    )
