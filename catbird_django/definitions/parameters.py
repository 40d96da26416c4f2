"""What a step's parameters stand for, and how their values are made (F1, F11)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, get_args, get_origin

from catbird_django.codec import codec_for
from catbird_django.definitions.flow_types import accepts_none
from catbird_django.definitions.names import INJECTED, check_name
from catbird_django.definitions.optional import Optional
from catbird_django.definitions.signature import Handler
from catbird_django.errors import DefinitionError


class Source(StrEnum):
    """Where a parameter's value comes from."""

    INPUT = "input"
    SIGNAL = "signal"
    CONTEXT = "ctx"
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
    """The step whose output it takes, if it takes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """A parameter, and the type of the values that it takes."""

    parameter: Parameter
    annotation: Any

    @property
    def when_missing(self) -> WhenMissing:
        """What it gets when the step it takes the output of was skipped."""
        if _is_our_optional(self.annotation):
            return WhenMissing.OPTIONAL
        return WhenMissing.NONE if accepts_none(self.annotation) else WhenMissing.REFUSED

    @property
    def is_optional(self) -> bool:
        return self.when_missing is not WhenMissing.REFUSED

    @property
    def value_type(self) -> Any:
        """The type of a value that is there."""
        if not _is_our_optional(self.annotation):
            return self.annotation
        return (get_args(self.annotation) or (Any,))[0]

    def value_of(self, text: str | bytes | None) -> Any:
        """Make the handler's argument of a stored value, or of None where there is none.

        Raise PayloadError, naming the parameter, when the value is not of its type; LookupError when it must be there.
        """
        return self.reader()(text)

    def reader(self) -> Callable[[str | bytes | None], Any]:
        """What `value_of` does, as a function that has looked up everything once."""
        name, when_missing, decode = self.parameter.name, self.when_missing, codec_for(self.value_type).decode

        def value_of(text: str | bytes | None) -> Any:
            if text is not None:
                value = decode(text, name=name)
                return Optional(value) if when_missing is WhenMissing.OPTIONAL else value
            if when_missing is WhenMissing.REFUSED:
                raise LookupError(f"there is no value for parameter {name!r}")
            return Optional() if when_missing is WhenMissing.OPTIONAL else None

        return value_of


def _is_our_optional(annotation: Any) -> bool:
    return annotation is Optional or get_origin(annotation) is Optional


def read_parameters(handler: Handler, depends_on: tuple[str, ...] | None) -> tuple[Parameter, ...]:
    """Read what each parameter stands for; raise DefinitionError for one that cannot be filled."""
    if not callable(handler):
        raise DefinitionError(f"a handler must be a function, not {handler!r}")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise DefinitionError("a step cannot be a generator; return a list instead")
    names = [_name_of(parameter) for parameter in _signature(handler).parameters.values()]
    steps = _steps_of([name for name in names if name not in INJECTED], depends_on)
    return tuple(
        Parameter(name=name, source=Source(name))
        if name in INJECTED
        else Parameter(name=name, source=Source.STEP, step=next(steps))
        for name in names
    )


def _signature(handler: Handler) -> inspect.Signature:
    try:
        return inspect.signature(handler)
    except ValueError:  # of something written in C
        raise DefinitionError("its parameters are not known: wrap it in a function") from None


def _name_of(parameter: inspect.Parameter) -> str:
    if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
        raise DefinitionError(f"its parameter {parameter} cannot be filled: every parameter needs a name of its own")
    if parameter.name in INJECTED and parameter.name not in set(Source) - {Source.STEP}:
        raise DefinitionError(f"it takes {parameter.name!r}, a reserved word that stands for nothing in a step")
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
