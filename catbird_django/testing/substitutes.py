"""Lets handlers fail on purpose, or puts something else in their place, for the length of a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import async_to_sync

from catbird_django.testing.names import name_of_work

Call = Callable[..., Any]

_NOT_GIVEN: Any = object()
_active: list[Substitute] = []


@dataclass(slots=True, eq=False)
class Substitute:
    """What is called in place of a handler, and how often it was."""

    name: str
    call: Call
    left: int | None = None
    """How many more times; None for always."""
    count: int = 0
    """How often it was called so far."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        if self.left is not None:
            self.left -= 1
        return self.call(*args, **kwargs)


@contextmanager
def failing(
    target: Any, error: BaseException | type[BaseException], *, times: int | None = None
) -> Iterator[Substitute]:
    """Let a task or step fail with this error within the block, each time or the first so many times.

    It is given as itself or by name: "charge", "order.ship". The handler is not called then. Whatever a handler may
    raise can be given, such as `Retry(after=60)`. Raise UnknownName, with a suggestion, if nothing here has that name.
    """

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    with _in_place_of(target, fail, times=times) as substitute:
        yield substitute


@contextmanager
def replaced(
    target: Any, by: Call | None = None, *, output: Any = _NOT_GIVEN, times: int | None = None
) -> Iterator[Substitute]:
    """Call a function in place of a task's or step's handler within the block, or have it return just this output.

    The function gets the arguments of the handler, those of a step by keyword, and may be async. What it returns is
    checked like any output. As `failing` otherwise.
    """
    if (by is None) == (output is _NOT_GIVEN):
        raise TypeError("replaced() takes either a function or output=…")
    with _in_place_of(target, by or (lambda *_, **__: output), times=times) as substitute:
        yield substitute


@contextmanager
def _in_place_of(target: Any, call: Call, *, times: int | None) -> Iterator[Substitute]:
    sync = async_to_sync(call) if iscoroutinefunction(call) else call
    substitute = Substitute(name_of_work(target), sync, left=times)
    _active.append(substitute)
    try:
        yield substitute
    finally:
        _active.remove(substitute)


def substitute_for(name: str) -> Substitute | None:
    """What is to be called in place of this handler now, if anything is: what was asked for last."""
    return next((one for one in reversed(_active) if one.name == name and one.left != 0), None)
