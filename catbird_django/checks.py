"""System checks, with stable ids.

| id | what |
|---|---|
| catbird.E001 | the database is not PostgreSQL |
| catbird.E002 | PostgreSQL is older than 15 |
| catbird.E003 | the SQL functions are missing or not the recorded ones |
| catbird.E004 | an unknown key in `CATBIRD` |
| catbird.E005 | a bad value in `CATBIRD` |
| catbird.E006 | two tasks of one name |
| catbird.E007 | a task module cannot be imported |
| catbird.E008 | a task whose types cannot be used |
| catbird.E009 | two flows of one name |
| catbird.E010 | a flow whose steps cannot work together |
| catbird.E011 | a flow whose types cannot be used, or do not fit each other |
| catbird.W001 | a migration that brings the SQL up to date is pending |
| catbird.W002 | the `on_fail` of a task or flow names a task that is not declared here |
| catbird.W003 | an atomic step in an app whose models are written to another database |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.db import DatabaseError, connections, router
from django.db.migrations.recorder import MigrationRecorder

from catbird_django import conf
from catbird_django.definitions.flow import FlowDraft
from catbird_django.definitions.problems import ProblemKind
from catbird_django.definitions.registry import registry
from catbird_django.definitions.task import TaskDefinition
from catbird_django.discovery import broken_modules
from catbird_django.engine.schema import expected_version, installed_version
from catbird_django.errors import DefinitionError

OLDEST_POSTGRESQL = 15


def check_settings(**_: Any) -> list[CheckMessage]:
    """Report unknown keys and bad values of CATBIRD, and a database that cannot be ours."""
    found: list[CheckMessage] = [
        Error(problem.message, id="catbird.E004" if problem.is_unknown_key else "catbird.E005")
        for problem in conf.problems()
    ]
    if not found:
        found += _check_vendor(conf.get_settings().database)
    return found


def _check_vendor(alias: str) -> list[CheckMessage]:
    connection = connections[alias]
    if connection.vendor == "postgresql":
        return []
    return [
        Error(
            f"catbird needs PostgreSQL, but database {alias!r} is {connection.vendor}",
            hint='Point DATABASES at PostgreSQL, or name another alias in CATBIRD["DATABASE"].',
            id="catbird.E001",
        )
    ]


def check_definitions(**_: Any) -> list[CheckMessage]:
    """Report modules that cannot be imported, names that are taken twice, and types that cannot be used."""
    found: list[CheckMessage] = [
        Error(f"{module.name} cannot be imported: {module.error}", id="catbird.E007") for module in broken_modules
    ]
    found += [Error(str(conflict), id="catbird.E006") for conflict in registry.conflicts.values()]
    found += [Error(str(conflict), id="catbird.E009") for conflict in registry.flow_conflicts.values()]
    for definition in registry.tasks.values():
        found += _check_types(definition)
        found += _check_on_fail(definition, "task")
    for flow in registry.flows.values():
        found += _check_flow(flow)
        found += _check_on_fail(flow, "flow")
        found += _check_atomic_steps(flow)
    return found


def _check_flow(flow: FlowDraft) -> list[CheckMessage]:
    return [
        Error(
            str(problem),
            hint=f"The flow is declared at {flow.location}; it cannot be run before this is corrected.",
            id="catbird.E010" if problem.kind is ProblemKind.SHAPE else "catbird.E011",
        )
        for problem in flow.problems()
    ]


def _check_on_fail(definition: TaskDefinition | FlowDraft, what: str) -> list[CheckMessage]:
    if not definition.on_fail or definition.on_fail in registry.tasks:
        return []
    return [
        checks.Warning(
            f"{definition.location}: on_fail of {what} {definition.name!r} names {definition.on_fail!r}, "
            f"which is not declared here",
            hint="Correct the name, or declare it with Task(…) if another process handles it.",
            id="catbird.W002",
        )
    ]


def _check_atomic_steps(flow: FlowDraft) -> list[CheckMessage]:
    """Report atomic steps whose writes would not be part of their transaction, as far as their app tells (F22)."""
    if conf.problems() or flow.problems():
        return []
    found: list[CheckMessage] = []
    for step in flow.definition.steps.values():
        alias, elsewhere = conf.get_settings().database, _models_elsewhere(step.handler.__module__)
        if step.is_atomic and elsewhere:
            found.append(
                checks.Warning(
                    f"{step.location}: {step.label} is atomic on database {alias!r}, "
                    f"but its app writes {', '.join(elsewhere)} to another",
                    hint="What it writes there is not undone with it: leave out atomic, or route the models to "
                    'CATBIRD["DATABASE"].',
                    id="catbird.W003",
                )
            )
    return found


def _models_elsewhere(module: str) -> list[str]:
    """The models of a module's app that are written to another database than ours."""
    app = apps.get_containing_app_config(module)
    alias = conf.get_settings().database
    models = [] if app is None else app.get_models()
    return [model._meta.label for model in models if router.db_for_write(model) != alias]  # noqa: SLF001 - public by name


def _check_types(definition: TaskDefinition) -> list[CheckMessage]:
    try:
        definition.fingerprint  # noqa: B018 - resolves every type of the task
    except DefinitionError as error:
        return [Error(str(error), id="catbird.E008")]
    return []


def check_database(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Report a PostgreSQL that is too old, and SQL that is missing or not current; only with `check --database`."""
    if conf.problems():
        return []
    alias = conf.get_settings().database
    if alias not in (databases or ()) or connections[alias].vendor != "postgresql":
        return []
    try:
        return _check_version(alias) or _check_sql(alias)
    except DatabaseError as error:
        return [Error(f"database {alias!r} cannot be asked: {error}", id="catbird.E003")]


def _check_version(alias: str) -> list[CheckMessage]:
    connection: Any = connections[alias]
    major = connection.pg_version // 10_000
    if major >= OLDEST_POSTGRESQL:
        return []
    return [Error(f"catbird needs PostgreSQL {OLDEST_POSTGRESQL} or later; {alias!r} is {major}", id="catbird.E002")]


def _check_sql(alias: str) -> list[CheckMessage]:
    applied = {name for app, name in MigrationRecorder(connections[alias]).applied_migrations() if app == "catbird"}
    installed, expected = installed_version(using=alias), expected_version()
    # Later SQL still serves earlier code: that is what a rolling deploy looks like.
    if not applied or (installed or "") >= expected:
        return []
    found = f"the SQL of {installed}" if installed else "no SQL of catbird"
    message = f"database {alias!r} has {found}, not {expected}"
    hint = f"Run `manage.py migrate catbird --database {alias}`."
    if expected in applied:
        return [Error(message, hint=hint, id="catbird.E003")]
    # A pending migration is only a warning: `migrate`, which would apply it, stops at errors.
    return [checks.Warning(message, hint=hint, id="catbird.W001")]
