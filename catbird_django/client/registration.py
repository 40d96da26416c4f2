"""Brings the definitions of this process into the database."""

from __future__ import annotations

import json
from collections.abc import Iterable

from catbird_django.definitions.task import TaskDefinition
from catbird_django.engine import tasks as engine
from catbird_django.engine.tasks import TaskRow


def register_tasks(definitions: Iterable[TaskDefinition], *, using: str) -> dict[str, int]:
    """Make these tasks known, or bring them up to date; return their ids by name."""
    definitions = list(definitions)
    if not definitions:
        return {}
    ids = engine.register_tasks([_row(definition) for definition in definitions], using=using)
    return {definition.name: task_id for definition, task_id in zip(definitions, ids, strict=True)}


def _row(definition: TaskDefinition) -> TaskRow:
    return TaskRow(
        name=definition.name,
        queue=definition.queue,
        description=definition.description,
        handler=definition.path,
        max_retries=definition.retry.max_retries,
        max_lost=definition.max_lost,
        input_schema=json.dumps(definition.input_codec.json_schema()),
        output_schema=json.dumps(definition.output_codec.json_schema()),
        fingerprint=definition.fingerprint,
    )
