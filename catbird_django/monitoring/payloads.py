"""Payloads as text, the way the database writes them: no digit is lost on the way through Python's numbers."""

from __future__ import annotations

from typing import TypeVar

from django.db.models import F, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, JSONObject, Left

from catbird_django.models import Flow, FlowRun, Item, SignalDelivery, StepInput, StepRun, Task, TaskRun

MAX_SHOWN = 200_000
"""How many characters of a payload are fetched for a page: one that plain SQL wrote may have any size."""
MAX_STEP_SHOWN = 5_000
"""How many of what a step has received or returned: a page shows all of its steps."""

MAX_ITEM_SHOWN = 300
"""How many of what an item has returned, where many are listed."""

R = TypeVar("R", TaskRun, FlowRun)
D = TypeVar("D", Task, Flow)


def with_payload_text(runs: QuerySet[R]) -> QuerySet[R]:
    """Add input, output, headers and error as JSON text, and the parts of an error as our workers write it."""
    return runs.annotate(
        input_text=_text_of("input"),
        output_text=_text_of("output"),
        headers_text=_text_of("headers"),
        error_text=_text_of("error"),
        error_type=_part_of_error("type"),
        error_message=_part_of_error("message"),
        error_traceback=_part_of_error("traceback"),
    )


def with_failed_step(runs: QuerySet[FlowRun]) -> QuerySet[FlowRun]:
    """Add the name of the step that a run failed with and, if it is a map, the index of the item."""
    return runs.annotate(failed_step=_part_of_error("step"), failed_item=_part_of_error("item"))


def with_item_text(items: QuerySet[Item]) -> QuerySet[Item]:
    """Add the element, the output and the parts of the error of items as text.

    The element of an item of a map over another map is what its source has given: its output, or how it failed.
    """
    source_error = JSONObject(
        index="source__index",
        type=KeyTextTransform("type", "source__error"),
        message=KeyTextTransform("message", "source__error"),
    )
    element = Coalesce("input", "source__output", source_error)
    return items.annotate(
        input_text=Left(Cast(element, TextField()), MAX_SHOWN + 1),
        output_text=_text_of("output"),
        error_text=_text_of("error"),
        error_type=_part_of_error("type"),
        error_message=_part_of_error("message"),
        error_traceback=_part_of_error("traceback"),
    )


def with_short_item_text(items: QuerySet[Item]) -> QuerySet[Item]:
    """Add how the output of items begins, and how they failed in short: for many of them on one page."""
    return items.annotate(
        output_text=_text_of("output", MAX_ITEM_SHOWN),
        error_type=_part_of_error("type", MAX_ITEM_SHOWN),
        error_message=_part_of_error("message", MAX_ITEM_SHOWN),
    )


def with_step_text(steps: QuerySet[StepRun]) -> QuerySet[StepRun]:
    """Add the output and the parts of the error of steps as text."""
    return steps.annotate(
        output_text=_text_of("output", MAX_STEP_SHOWN),
        error_type=_part_of_error("type", MAX_STEP_SHOWN),
        error_message=_part_of_error("message", MAX_STEP_SHOWN),
        error_traceback=_part_of_error("traceback", MAX_STEP_SHOWN),
        error_item=_part_of_error("item"),
    )


def with_signal_text(signals: QuerySet[SignalDelivery]) -> QuerySet[SignalDelivery]:
    """Add the payloads of signals as text."""
    return signals.annotate(payload_text=_text_of("payload", MAX_STEP_SHOWN))


def with_value_text(inputs: QuerySet[StepInput]) -> QuerySet[StepInput]:
    """Add what a step has received as text: the value that was kept, or that of its source; and the length of a list of
    items, which is not stored as one value."""
    return inputs.annotate(
        value_text=Left(Cast(Coalesce("value", "source_run__output"), TextField()), MAX_STEP_SHOWN + 1),
        item_count=F("source_run__items_spawned"),
    )


def with_schema_text(definitions: QuerySet[D]) -> QuerySet[D]:
    """Add the JSON schemas of input and output as text."""
    return definitions.annotate(
        input_schema_text=_text_of("input_schema"), output_schema_text=_text_of("output_schema")
    )


def _text_of(field: str, limit: int = MAX_SHOWN) -> Left:
    return Left(Cast(field, TextField()), limit + 1)


def _part_of_error(key: str, limit: int = MAX_SHOWN) -> Left:
    return Left(KeyTextTransform(key, "error"), limit + 1)
