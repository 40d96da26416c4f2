"""What a step's parameters stand for, and how their values are made (F1, F11)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, get_args, get_origin

from catbird_django.codec import codec_for
from catbird_django.definitions.flow_types import accepts_none, is_unstated
from catbird_django.definitions.item_types import Stream, list_of, stream_of
from catbird_django.definitions.names import INJECTED, check_name
from catbird_django.definitions.optional import Optional
from catbird_django.definitions.signature import Handler
from catbird_django.definitions.step_kinds import StepKind
from catbird_django.definitions.type_names import type_name
from catbird_django.errors import DefinitionError


class Source(StrEnum):
    """Where a parameter's value comes from."""

    INPUT = "input"
    SIGNAL = "signal"
    CONTEXT = "ctx"
    ITEM = "item"
    ACC = "acc"
    STEP = "step"


class WhenMissing(StrEnum):
    """What a parameter gets when there is no value."""

    REFUSED = "refused"
    NONE = "none"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a step's handler."""

    name: str
    source: Source
    step: str = ""
    """The step whose output it takes, as a whole or item by item; empty if it takes none."""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A parameter, and the type of the values that it takes."""

    parameter: Parameter
    annotation: Any

    @property
    def label(self) -> str:
        """The parameter as it is written, for messages."""
        name = self.parameter.name
        return name if is_unstated(self.annotation) else f"{name}: {type_name(self.annotation)}"

    @property
    def when_missing(self) -> WhenMissing:
        """What it gets when the step it takes the output of was skipped."""
        if _is_our_optional(self.annotation):
            return WhenMissing.OPTIONAL
        # An item may be None, but there is one: without a list to go over, there is nothing to call the handler for.
        is_there = self.parameter.source in {Source.ITEM, Source.ACC}
        return WhenMissing.NONE if accepts_none(self.annotation) and not is_there else WhenMissing.REFUSED

    @property
    def is_optional(self) -> bool:
        return self.when_missing is not WhenMissing.REFUSED

    @property
    def value_type(self) -> Any:
        """The type of a value that is there."""
        if not _is_our_optional(self.annotation):
            return self.annotation
        return (get_args(self.annotation) or (Any,))[0]

    @property
    def stream(self) -> Stream | None:
        """How it takes the items of a map one after the other; None if it takes a whole value."""
        return stream_of(self.value_type) if self.parameter.source is Source.STEP else None

    @property
    def stored_type(self) -> Any:
        """The type of a value that is there, as a whole: of a stream, the list of what comes."""
        stream = self.stream
        return self.value_type if stream is None else list_of(stream.element)

    def value_of(self, text: str | bytes | None) -> Any:
        """Make the handler's argument of a stored value, or of None where there is none; of a stream, the whole list.

        Raise PayloadError, naming the parameter, when the value is not of its type; LookupError when it must be there.
        """
        return self.reader()(text)

    def reader(self) -> Callable[[str | bytes | None], Any]:
        """What `value_of` does, as a function that has looked up everything once."""
        name, decode = self.parameter.name, codec_for(self.stored_type).decode
        given, missing = self.given, self.missing

        def value_of(text: str | bytes | None) -> Any:
            return missing() if text is None else given(decode(text, name=name))

        return value_of

    def given(self, value: Any) -> Any:
        """A value that is there, as the handler takes it."""
        return Optional(value) if self._takes_our_optional else value

    def missing(self) -> Any:
        """What the handler takes where there is no value; raise LookupError when it must be there."""
        match self.when_missing:
            case WhenMissing.REFUSED:
                raise LookupError(f"there is no value for parameter {self.parameter.name!r}")
            case WhenMissing.OPTIONAL:
                return Optional()
            case WhenMissing.NONE:
                return None

    @cached_property
    def _takes_our_optional(self) -> bool:
        return _is_our_optional(self.annotation)


def _is_our_optional(annotation: Any) -> bool:
    return annotation is Optional or get_origin(annotation) is Optional


INPUT = Source.INPUT.value

# What the reserved words among the parameters of each kind of step stand for.
_GIVEN_TO_ALL = {Source.INPUT, Source.SIGNAL, Source.CONTEXT}
_GIVEN = {
    StepKind.STEP: _GIVEN_TO_ALL,
    StepKind.MAP: _GIVEN_TO_ALL | {Source.ITEM},
    StepKind.REDUCE: _GIVEN_TO_ALL | {Source.ITEM, Source.ACC},
}
_NEEDED = {StepKind.STEP: (), StepKind.MAP: (Source.ITEM,), StepKind.REDUCE: (Source.ACC, Source.ITEM)}


def read_parameters(
    handler: Handler, depends_on: tuple[str, ...] | None, *, kind: StepKind, over: str
) -> tuple[Parameter, ...]:
    """Read what each parameter stands for; raise DefinitionError for one that cannot be filled."""
    if not callable(handler):
        raise DefinitionError(f"a handler must be a function, not {handler!r}")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise DefinitionError(f"a {kind} cannot be a generator; return a list instead")
    names = [_name_of(parameter, kind) for parameter in _signature(handler).parameters.values()]
    for needed in _NEEDED[kind]:
        if needed not in names:
            raise DefinitionError(f"a {kind} needs a parameter {needed.value!r}, and it has none")
    steps = _steps_of([name for name in names if name not in INJECTED], depends_on)
    return tuple(_given(Source(name), over) if name in INJECTED else _taken(name, next(steps)) for name in names)


def _given(source: Source, over: str) -> Parameter:
    goes_over_step = source is Source.ITEM and over != INPUT
    return Parameter(name=source.value, source=source, step=over if goes_over_step else "")


def _taken(name: str, step: str) -> Parameter:
    return Parameter(name=name, source=Source.STEP, step=step)


def _signature(handler: Handler) -> inspect.Signature:
    try:
        return inspect.signature(handler)
    except ValueError:  # of something written in C
        raise DefinitionError("its parameters are not known: wrap it in a function") from None


def _name_of(parameter: inspect.Parameter, kind: StepKind) -> str:
    if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
        raise DefinitionError(f"its parameter {parameter} cannot be filled: every parameter needs a name of its own")
    if parameter.name in INJECTED and parameter.name not in _GIVEN[kind]:
        raise DefinitionError(f"it takes {parameter.name!r}, a reserved word that stands for nothing in a {kind}")
    return parameter.name


def _steps_of(names: list[str], depends_on: tuple[str, ...] | None) -> Iterator[str]:
    if depends_on is None:
        return iter([check_name(name, "step") for name in names])
    if len(names) != len(depends_on):
        raise DefinitionError(
            f"depends_on names {len(depends_on)} steps for {len(names)} parameters ({', '.join(names) or 'none'}); "
            f"name one step for each, in their order, and in after=[…] those whose output is not taken"
        )
    return iter(depends_on)
