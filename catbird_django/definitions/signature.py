"""What a handler takes and gives, read from its parameters and annotations."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from asgiref.sync import iscoroutinefunction

from catbird_django.errors import DefinitionError

Handler = Callable[..., Any]
CONTEXT = "ctx"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """How to call a handler."""

    takes_input: bool
    takes_context: bool
    is_async: bool
    input_name: str | None


def read_signature(handler: Handler) -> Signature:
    """Read how to call a task's handler: `()`, `(input)`, `(input, ctx)` or `(ctx)`; refuse anything else."""
    where = location_of(handler)
    if not callable(handler):
        raise DefinitionError(f"a handler must be a function, not {handler!r}")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise DefinitionError(f"{where}: a task cannot be a generator; return a list instead")
    parameters = list(inspect.signature(handler).parameters.values())
    for parameter in parameters:
        _check_parameter(parameter, where)
    names = [parameter.name for parameter in parameters]
    if len(names) > 2 or (len(names) == 2 and names[1] != CONTEXT):
        raise DefinitionError(
            f"{where}: a task takes one input, and `ctx` after it if it wants the context, not ({', '.join(names)}); "
            f"put several values into one dataclass"
        )
    takes_context = CONTEXT in names
    takes_input = len(names) > takes_context
    return Signature(
        takes_input=takes_input,
        takes_context=takes_context,
        is_async=is_async(handler),
        input_name=names[0] if takes_input else None,
    )


def is_async(handler: Handler) -> bool:
    """Whether calling it gives a coroutine."""
    return iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)


def _check_parameter(parameter: inspect.Parameter, where: str) -> None:
    if parameter.kind not in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}:
        raise DefinitionError(f"{where}: {parameter} cannot be filled; a task's parameters are `input` and `ctx`")


def read_types(handler: Handler, signature: Signature) -> tuple[Any, Any]:
    """Resolve the annotations of input and output; Any where there is none, None where there is no input."""
    try:
        hints = typing.get_type_hints(inspect.unwrap(handler), include_extras=True)
    except Exception as error:
        raise DefinitionError(
            f"{location_of(handler)}: an annotation cannot be resolved ({error}); "
            f"its type must be importable where the handler is defined"
        ) from error
    input_type = hints.get(signature.input_name, Any) if signature.input_name else None
    return input_type, hints.get("return", Any)


def location_of(handler: Any) -> str:
    """Say where a handler is defined, as file:line."""
    code = getattr(inspect.unwrap(handler), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(handler)
