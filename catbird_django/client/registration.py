"""Brings the definitions of this process into the database."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from catbird_django.conf import get_settings
from catbird_django.definitions.flow import FlowDefinition
from catbird_django.definitions.task import TaskDefinition
from catbird_django.engine import flows as flow_engine
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
        max_lost=get_settings().max_lost if definition.max_lost is None else definition.max_lost,
        condition=None if definition.condition is None else definition.condition.as_json(),
        on_fail=definition.on_fail,
        on_cancel=definition.on_cancel,
        retention=None if definition.retention is None else f"{definition.retention.total_seconds()} seconds",
        options=definition.how_to_run.as_json(),
        input_schema=definition.input_codec.json_schema(),
        output_schema=definition.output_codec.json_schema(),
        fingerprint=definition.fingerprint,
    )


def register_flows(definitions: Iterable[FlowDefinition], *, using: str) -> dict[str, int]:
    """Make these flows known, each as the current version of its name; return the ids of the versions by name.

    A shape that is known already is not written again.
    """
    definitions = list(definitions)
    if not definitions:
        return {}
    ids = flow_engine.register_flows([_stored(definition) for definition in definitions], using=using)
    return {definition.name: flow_id for definition, flow_id in zip(definitions, ids, strict=True)}


def _stored(definition: FlowDefinition) -> dict[str, Any]:
    """The plan of a flow with what only the settings know."""
    plan = definition.plan.as_json()
    for step in plan["steps"]:
        if step["max_lost"] is None:
            step["max_lost"] = get_settings().max_lost
    return {**plan, "fingerprint": definition.fingerprint}
