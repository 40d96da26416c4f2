"""The declaration of a step: its handler, what it needs, and its options."""

from __future__ import annotations

import inspect
import typing
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from catbird_django.codec import Codec, codec_for
from catbird_django.definitions.conditions import Condition, roots_of
from catbird_django.definitions.flow_options import SkipPolicy
from catbird_django.definitions.item_types import list_of, or_error
from catbird_django.definitions.options import HandlerOptions, OnCancel
from catbird_django.definitions.parameters import Argument, Parameter, Source
from catbird_django.definitions.retry import RetryPolicy
from catbird_django.definitions.signal import MAX_PAYLOAD, Signal
from catbird_django.definitions.signature import Handler, is_async
from catbird_django.definitions.step_kinds import StepKind
from catbird_django.errors import DefinitionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """A step that must have ended before another starts."""

    step: str
    parameter: Parameter | None
    """The parameter that takes its output, or one item of it; None if only the order counts."""


@dataclass(frozen=True, kw_only=True)
class StepDefinition:
    """A step as code declares it. Types are resolved on first use, so that they may be defined further down."""

    name: str
    kind: StepKind
    handler: Handler
    location: str
    parameters: tuple[Parameter, ...]
    after: tuple[str, ...]
    condition: Condition | None
    signal: Signal | None
    may_skip: bool
    on_unmet: SkipPolicy
    on_exhausted: SkipPolicy
    delay: timedelta | None
    deadline: timedelta | None
    retry: RetryPolicy
    max_lost: int | None
    """None: as the settings say."""
    how_to_run: HandlerOptions
    on_cancel: OnCancel
    over: str
    """What a map or reduce goes over: a step, or "input"; empty for a plain step."""
    initial: Any
    """What a reduce starts with."""
    max_failed_items: int | None
    """How many items of a map may fail before it fails; None for all of them."""
    is_inline: bool
    is_atomic: bool

    @property
    def label(self) -> str:
        """What it is, as messages name it."""
        return f"{self.kind} {self.name!r}"

    @cached_property
    def dependencies(self) -> tuple[Dependency, ...]:
        """The steps whose outputs it takes, in the order of its parameters, then those it only comes after."""
        taken = [Dependency(step=one.step, parameter=one) for one in self.parameters if one.step]
        return (*taken, *(Dependency(step=name, parameter=None) for name in self.after))

    @property
    def is_async(self) -> bool:
        return is_async(self.handler)

    @property
    def condition_roots(self) -> frozenset[str]:
        """What its condition looks at; with the signal among it, it is decided only when that has come (F10a)."""
        return frozenset() if self.condition is None else roots_of(self.condition.tree)

    @cached_property
    def _annotations(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(inspect.unwrap(self.handler), include_extras=True)
        except Exception as error:
            raise DefinitionError(
                f"an annotation of {self.label} cannot be resolved ({error}); "
                f"its type must be importable where the handler is defined"
            ) from error

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """Its parameters with their types; Any where there is no annotation."""
        return tuple(
            Argument(parameter=parameter, annotation=self._annotations.get(parameter.name, Any))
            for parameter in self.parameters
        )

    def argument(self, parameter: Parameter) -> Argument:
        """One of its parameters, with its type."""
        return self.arguments[self.parameters.index(parameter)]

    def argument_from(self, source: Source) -> Argument | None:
        """The parameter that a reserved word stands for, with its type; None if it has none such."""
        return next((one for one in self.arguments if one.parameter.source is source), None)

    @cached_property
    def output_type(self) -> Any:
        """The type of what the handler returns; of a map, for one item."""
        return self._annotations.get("return", Any)

    @cached_property
    def result_type(self) -> Any:
        """The type of its output as others see it: of a map, the list of what was returned for each item."""
        if self.kind is not StepKind.MAP:
            return self.output_type
        return list_of(or_error(self.output_type) if self.keeps_errors else self.output_type)

    @property
    def keeps_errors(self) -> bool:
        """Whether items that failed have an `ItemError` in their place."""
        return self.max_failed_items != 0

    @cached_property
    def output_codec(self) -> Codec[Any]:
        """Of what the handler returns."""
        return codec_for(self.output_type)

    @cached_property
    def initial_text(self) -> str:
        """What a reduce starts with, as JSON text: whoever reads it has a value of his own.

        Raise PayloadError when it is no value that the handler takes, or, for a list without items, returns.
        """
        acc = self.argument_from(Source.ACC)
        taken = codec_for(Any if acc is None else acc.value_type)
        self.output_codec.encode(self.initial, name="initial", max_bytes=MAX_PAYLOAD)
        return taken.encode(self.initial, name="initial", max_bytes=MAX_PAYLOAD)

    @cached_property
    def description(self) -> str:
        return inspect.getdoc(self.handler) or ""

    @cached_property
    def path(self) -> str:
        """Where the handler can be imported from, as module:name."""
        kind = self.handler if hasattr(self.handler, "__qualname__") else type(self.handler)
        return f"{kind.__module__}:{kind.__qualname__}"
