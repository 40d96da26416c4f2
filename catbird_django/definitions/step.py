"""The declaration of a step: its handler, what it needs, and its options."""

from __future__ import annotations

import inspect
import typing
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from asgiref.sync import iscoroutinefunction

from catbird_django.codec import Codec, codec_for
from catbird_django.definitions.checked import checked_flag
from catbird_django.definitions.conditions import Condition, parse_condition, roots_of
from catbird_django.definitions.flow_options import SkipPolicy, StepOptions, skip_policy, step_names, timing
from catbird_django.definitions.names import check_name
from catbird_django.definitions.options import (
    HandlerOptions,
    OnCancel,
    handler_options,
    max_lost,
    on_cancel,
    refuse_unknown_options,
    retry_policy,
)
from catbird_django.definitions.parameters import Argument, Parameter, Source, read_parameters
from catbird_django.definitions.retry import RetryPolicy
from catbird_django.definitions.signal import Signal, as_signal
from catbird_django.definitions.signature import Handler, location_of
from catbird_django.errors import DefinitionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """A step that must have ended before another starts."""

    step: str
    parameter: Parameter | None
    """The parameter that takes its output; None if only the order counts."""


@dataclass(frozen=True, kw_only=True)
class StepDefinition:
    """A step as code declares it. Types are resolved on first use, so that they may be defined further down."""

    name: str
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

    @cached_property
    def dependencies(self) -> tuple[Dependency, ...]:
        """The steps whose outputs it takes, in the order of its parameters, then those it only comes after."""
        taken = [Dependency(step=one.step, parameter=one) for one in self.parameters if one.source is Source.STEP]
        return (*taken, *(Dependency(step=name, parameter=None) for name in self.after))

    @property
    def is_async(self) -> bool:
        return iscoroutinefunction(self.handler) or iscoroutinefunction(type(self.handler).__call__)

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
                f"an annotation of step {self.name!r} cannot be resolved ({error}); "
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

    @cached_property
    def output_type(self) -> Any:
        return self._annotations.get("return", Any)

    @cached_property
    def output_codec(self) -> Codec[Any]:
        return codec_for(self.output_type)

    @cached_property
    def description(self) -> str:
        return inspect.getdoc(self.handler) or ""

    @cached_property
    def path(self) -> str:
        """Where the handler can be imported from, as module:name."""
        kind = self.handler if hasattr(self.handler, "__qualname__") else type(self.handler)
        return f"{kind.__module__}:{kind.__qualname__}"


def define_step(*, name: str | None, handler: Handler, options: StepOptions) -> StepDefinition:
    """Declare a step; refuse at once, with its place, what can be known to be wrong without the other steps."""
    refuse_unknown_options(options, StepOptions, "step")
    name = name if name is not None else getattr(handler, "__name__", None)
    location = location_of(handler)
    try:
        return _define(check_name(name, "step"), handler, location, options)
    except DefinitionError as error:
        raise DefinitionError(f"{location}: step {name!r}: {error}") from None


def _define(name: str, handler: Handler, location: str, options: StepOptions) -> StepDefinition:
    given = options.get("depends_on")
    parameters = read_parameters(handler, None if given is None else step_names("depends_on", given))
    after = step_names("after", options.get("after", ()))
    signal = as_signal(options.get("signal"))
    delay, deadline = timing(options)
    _refuse_contradictions(parameters, after, signal, options)
    return StepDefinition(
        name=name,
        handler=handler,
        location=location,
        parameters=parameters,
        after=after,
        condition=_condition(parameters, after, signal, options),
        signal=signal,
        may_skip=checked_flag("may_skip", options.get("may_skip", False)),
        on_unmet=skip_policy("on_unmet", options.get("on_unmet", "skip")),
        on_exhausted=skip_policy("on_exhausted", options.get("on_exhausted", "fail")),
        delay=delay,
        deadline=deadline,
        retry=retry_policy(options),
        max_lost=max_lost(options),
        how_to_run=handler_options(options),
        on_cancel=on_cancel(options),
    )


def _condition(
    parameters: tuple[Parameter, ...], after: tuple[str, ...], signal: Signal | None, options: StepOptions
) -> Condition | None:
    text = options.get("condition")
    if text is None:
        return None
    steps = (parameter.step for parameter in parameters if parameter.source is Source.STEP)
    return parse_condition(text, roots={Source.INPUT.value, *steps, *after} | ({"signal"} if signal else set()))


def _refuse_contradictions(
    parameters: tuple[Parameter, ...], after: tuple[str, ...], signal: Signal | None, options: StepOptions
) -> None:
    if signal is None and any(parameter.source is Source.SIGNAL for parameter in parameters):
        raise DefinitionError("it takes a signal but waits for none: say which with signal=Type")
    if "on_unmet" in options and options.get("condition") is None:
        raise DefinitionError("on_unmet says what follows from its condition, but it has none")
    for parameter in parameters:
        if parameter.step in after:
            raise DefinitionError(f"after names {parameter.step!r}, whose output it takes anyway: leave it out there")
