"""`@task`: makes a background task of a function."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, overload

from catbird_django.client.context import TaskContext
from catbird_django.client.tasks import Task

I = TypeVar("I")  # noqa: E741 - input and output, as in Task[I, O]
O = TypeVar("O")  # noqa: E741
Async = Coroutine[Any, Any, O]


class TaskDecorator:
    """Makes a background task of a function: `@task`, or with options, `@task(queue="mail")`.

    The function takes nothing, its input, or its input and `ctx`. Its name is the task's, unless `name` is given.
    """

    def __init__(self, *, name: str | None = None, queue: str = "default") -> None:
        self._name = name
        self._queue = queue

    @overload
    def __call__(self, handler: Callable[[], Async[O]], /) -> Task[None, O]: ...
    @overload
    def __call__(self, handler: Callable[[I], Async[O]], /) -> Task[I, O]: ...
    @overload
    def __call__(self, handler: Callable[[I, TaskContext], Async[O]], /) -> Task[I, O]: ...
    @overload
    def __call__(self, handler: Callable[[], O], /) -> Task[None, O]: ...
    @overload
    def __call__(self, handler: Callable[[I], O], /) -> Task[I, O]: ...
    @overload
    def __call__(self, handler: Callable[[I, TaskContext], O], /) -> Task[I, O]: ...
    @overload
    def __call__(self, /, *, name: str | None = None, queue: str = "default") -> TaskDecorator: ...

    def __call__(self, handler: Any = None, /, *, name: str | None = None, queue: str = "default") -> Any:
        if handler is None:
            return TaskDecorator(name=name, queue=queue)
        if isinstance(handler, str):
            raise TypeError(f"@task decorates a function; to declare a task without one, write Task({handler!r}, …)")
        return Task(self._name, handler=handler, queue=self._queue)


task = TaskDecorator()
