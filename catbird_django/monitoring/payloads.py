"""Payloads as text, the way the database writes them: no digit is lost on the way through Python's numbers."""

from __future__ import annotations

from django.db.models import QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Left

from catbird_django.models import Task, TaskRun

MAX_SHOWN = 200_000
"""How many characters of a payload are fetched for a page: one that plain SQL wrote may have any size."""


def with_payload_text(runs: QuerySet[TaskRun]) -> QuerySet[TaskRun]:
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


def with_schema_text(tasks: QuerySet[Task]) -> QuerySet[Task]:
    """Add the JSON schemas of input and output as text."""
    return tasks.annotate(input_schema_text=_text_of("input_schema"), output_schema_text=_text_of("output_schema"))


def _text_of(field: str) -> Left:
    return Left(Cast(field, TextField()), MAX_SHOWN + 1)


def _part_of_error(key: str) -> Left:
    return Left(KeyTextTransform(key, "error"), MAX_SHOWN + 1)
