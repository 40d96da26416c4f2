"""The declaration of a task: its name, its types, its handler."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from catbird_django.codec import Codec, codec_for
from catbird_django.definitions.names import check_name
from catbird_django.definitions.options import TaskOptions, max_lost, refuse_unknown_options, retry_policy
from catbird_django.definitions.retry import RetryPolicy
from catbird_django.definitions.signature import Handler, Signature, location_of, read_signature, read_types
from catbird_django.errors import DefinitionError


@dataclass(frozen=True, kw_only=True)
class TaskDefinition:
    """A task as code declares it. Types are resolved on first use, so that they may be defined further down."""

    name: str
    queue: str
    handler: Handler | None
    declared_types: tuple[Any, Any] | None
    retry: RetryPolicy
    max_lost: int
    location: str

    @cached_property
    def signature(self) -> Signature:
        if self.handler is None:
            raise DefinitionError(f"task {self.name!r} has no handler in this process")
        return read_signature(self.handler)

    @cached_property
    def types(self) -> tuple[Any, Any]:
        """The types of input and output."""
        if self.declared_types is not None or self.handler is None:
            return self.declared_types or (Any, Any)
        return read_types(self.handler, self.signature)

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
            self.input_codec.json_schema(),
            self.output_codec.json_schema(),
        ]
        return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()


def define_task(
    *, name: str | None, handler: Handler | None, types: tuple[Any, Any] | None, options: TaskOptions
) -> TaskDefinition:
    """Declare a task; refuse at once what can be known to be wrong without its surroundings."""
    refuse_unknown_options(options)
    if handler is not None:
        read_signature(handler)
        name = name if name is not None else getattr(handler, "__name__", None)
    return TaskDefinition(
        name=check_name(name, "task"),
        queue=check_name(options.get("queue", "default"), "queue"),
        handler=handler,
        declared_types=types,
        retry=retry_policy(options),
        max_lost=max_lost(options),
        location=location_of(handler) if handler else f"Task({name!r})",
    )
