"""`@task`: makes a background task of a function."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, Unpack, overload

from catbird_django.client.context import TaskContext
from catbird_django.client.tasks import Task
from catbird_django.definitions.options import TaskOptions

I = TypeVar("I")  # noqa: E741 - input and output, as in Task[I, O]
O = TypeVar("O")  # noqa: E741
Async = Coroutine[Any, Any, O]


class TaskDecorator:
    """Makes a background task of a function: `@task`, or with options, `@task(queue="mail")`.

    The function takes nothing, its input, or its input and `ctx`. Its name is the task's, unless `name` is given.
    """

    def __init__(self, name: str | None = None, **options: Unpack[TaskOptions]) -> None:
        self._name = name
        self._options = options

    @overload
    def __call__(self, handler: Callable[[I, TaskContext], Async[O]], /) -> Task[I, O]: ...
    @overload
    def __call__(self, handler: Callable[[TaskContext], Async[O]], /) -> Task[None, O]: ...
    @overload
    def __call__(self, handler: Callable[[I], Async[O]], /) -> Task[I, O]: ...  # type: ignore[overload-overlap] # `ctx` is not an input
    @overload
    def __call__(self, handler: Callable[[], Async[O]], /) -> Task[None, O]: ...
    @overload
    def __call__(self, handler: Callable[[I, TaskContext], O], /) -> Task[I, O]: ...
    @overload
    def __call__(self, handler: Callable[[TaskContext], O], /) -> Task[None, O]: ...
    @overload
    def __call__(self, handler: Callable[[I], O], /) -> Task[I, O]: ...
    @overload
    def __call__(self, handler: Callable[[], O], /) -> Task[None, O]: ...
    @overload
    def __call__(self, /, *, name: str | None = None, **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    def __call__(self, handler: Any = None, /, *, name: str | None = None, **options: Unpack[TaskOptions]) -> Any:
        if handler is None:
            return TaskDecorator(name, **options)
        if isinstance(handler, str):
            raise TypeError(f"@task decorates a function; to declare a task without one, write Task({handler!r}, …)")
        return Task(self._name, handler=handler, **self._options)


task = TaskDecorator()
