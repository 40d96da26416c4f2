"""Brings the definitions of this process into the database, and remembers which are there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from django.db import transaction

from catbird_django.definitions.task import TaskDefinition
from catbird_django.engine import tasks as engine
from catbird_django.engine.tasks import TaskRow

# (alias, name, fingerprint) of what is known to be committed.
_registered: set[tuple[str, str, str]] = set()


def register_tasks(definitions: Iterable[TaskDefinition], *, using: str) -> dict[str, int]:
    """Make these tasks known, or bring them up to date; return their ids by name."""
    definitions = list(definitions)
    if not definitions:
        return {}
    ids = engine.register_tasks([_row(definition) for definition in definitions], using=using)
    keys = {_key(definition, using) for definition in definitions}
    transaction.on_commit(lambda: _registered.update(keys), using=using)
    return {definition.name: task_id for definition, task_id in zip(definitions, ids, strict=True)}


def register_once(definition: TaskDefinition, *, using: str) -> None:
    """Make a task known unless this process did so before, in a transaction that was committed."""
    if _key(definition, using) not in _registered:
        register_tasks([definition], using=using)


def forget_registration(definition: TaskDefinition, *, using: str) -> None:
    """Register the task again before its next run."""
    _registered.discard(_key(definition, using))


def _key(definition: TaskDefinition, using: str) -> tuple[str, str, str]:
    return (using, definition.name, definition.fingerprint)


def _row(definition: TaskDefinition) -> TaskRow:
    return TaskRow(
        name=definition.name,
        queue=definition.queue,
        description=definition.description,
        handler=definition.path,
        input_schema=_schema_text(definition.input_codec.json_schema()),
        output_schema=_schema_text(definition.output_codec.json_schema()),
        fingerprint=definition.fingerprint,
    )


def _schema_text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, sort_keys=True)
