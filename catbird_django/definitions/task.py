"""The declaration of a task: its name, its types, its handler."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from catbird_django.codec import Codec, codec_for
from catbird_django.definitions.checked import checked_duration
from catbird_django.definitions.conditions import Condition
from catbird_django.definitions.names import check_name
from catbird_django.definitions.options import (
    HandlerOptions,
    TaskOptions,
    condition,
    handler_options,
    max_lost,
    on_cancel,
    on_fail,
    refuse_unknown_options,
    retry_policy,
)
from catbird_django.definitions.retry import RetryPolicy
from catbird_django.definitions.signature import Handler, Signature, location_of, read_signature, read_types
from catbird_django.errors import DefinitionError

UNSTATED = object()  # a type that the declaration leaves to the handler's annotations


@dataclass(frozen=True, kw_only=True)
class TaskDefinition:
    """A task as code declares it. Types are resolved on first use, so that they may be defined further down."""

    name: str
    queue: str
    handler: Handler | None
    stated_types: tuple[Any, Any]
    retry: RetryPolicy
    max_lost: int | None
    """None: as the settings say."""
    how_to_run: HandlerOptions
    condition: Condition | None
    on_fail: str
    on_cancel: str
    retention: timedelta | None
    location: str

    @cached_property
    def signature(self) -> Signature:
        if self.handler is None:
            raise DefinitionError(f"task {self.name!r} has no handler in this process")
        return read_signature(self.handler)

    @cached_property
    def types(self) -> tuple[Any, Any]:
        """The types of input and output: as stated, else as annotated, else anything."""
        annotated = read_types(self.handler, self.signature) if self.handler else (Any, Any)
        stated_input, stated_output = self.stated_types
        return (
            annotated[0] if stated_input is UNSTATED else stated_input,
            annotated[1] if stated_output is UNSTATED else stated_output,
        )

    @cached_property
    def input_codec(self) -> Codec[Any]:
        return self._codec(self.types[0], "input")

    @cached_property
    def output_codec(self) -> Codec[Any]:
        return self._codec(self.types[1], "output")

    def _codec(self, annotation: Any, what: str) -> Codec[Any]:
        try:
            return codec_for(annotation)
        except DefinitionError as error:
            raise DefinitionError(f"{self.location}: {what} of task {self.name!r}: {error}") from error

    @cached_property
    def description(self) -> str:
        return inspect.getdoc(self.handler) or "" if self.handler else ""

    @cached_property
    def path(self) -> str:
        """Where the handler can be imported from, as module:name."""
        return f"{self.handler.__module__}:{self.handler.__qualname__}" if self.handler else ""

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that is stored of the task: equal hash, nothing to write."""
        stored = [
            self.name,
            self.queue,
            self.description,
            self.path,
            self.retry.max_retries,
            self.max_lost,
            self.condition.text if self.condition else "",
            self.on_fail,
            self.on_cancel,
            str(self.retention),
            self.how_to_run.as_json(),
            self.input_codec.json_schema(),
            self.output_codec.json_schema(),
        ]
        return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()


def define_task(
    *, name: str | None, handler: Handler | None, types: tuple[Any, Any], options: TaskOptions
) -> TaskDefinition:
    """Declare a task; refuse at once what can be known to be wrong without its surroundings."""
    refuse_unknown_options(options, TaskOptions, "task")
    if handler is not None:
        read_signature(handler)
        name = name if name is not None else getattr(handler, "__name__", None)
    return TaskDefinition(
        name=check_name(name, "task"),
        queue=check_name(options.get("queue", "default"), "queue"),
        handler=handler,
        stated_types=types,
        retry=retry_policy(options),
        max_lost=max_lost(options),
        how_to_run=handler_options(options),
        condition=condition(options),
        on_fail=on_fail(options.get("on_fail")),
        on_cancel=on_cancel(options),
        retention=checked_duration("retention", options.get("retention")),
        location=location_of(handler) if handler else f"Task({name!r})",
    )
