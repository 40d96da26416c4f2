"""`Task` and `.run()`: from a Python call to queued rows in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Generic, TypeVar, Unpack, overload

from asgiref.sync import sync_to_async

from catbird_django.client.bulk import Starter, for_each
from catbird_django.client.handles import TaskHandle
from catbird_django.client.options import CheckedOptions, RunOptions, check_options
from catbird_django.client.registration import register_tasks
from catbird_django.client.wake import wake_after_commit, wake_tick_after_commit
from catbird_django.codec import encode_any
from catbird_django.conf import get_settings
from catbird_django.definitions.options import TaskOptions
from catbird_django.definitions.registry import registry
from catbird_django.definitions.signature import Handler
from catbird_django.definitions.task import UNSTATED, TaskDefinition, define_task
from catbird_django.engine import tasks as engine
from catbird_django.engine.tasks import RunAnswer
from catbird_django.errors import InvalidOption, UnknownName
from catbird_django.statuses import RunVerdict

I = TypeVar("I")  # noqa: E741 - input and output, as in Task[I, O]
O = TypeVar("O")  # noqa: E741
JsonForm = dict[str, Any] | list[Any]

ENDED_AT_ONCE = {RunVerdict.SKIPPED, RunVerdict.FAILED}  # nobody needs to be woken for these


class Task(Generic[I, O]):
    """A background function. Calling it calls the function; `.run()` queues a run of it.

    `Task("name", input=…, output=…)` declares a task that another process handles; `handler=` gives it one.
    """

    @overload
    def __init__(
        self,
        name: str | None = None,
        *,
        input: type[I],
        output: type[O],
        handler: Handler | None = None,
        **options: Unpack[TaskOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str | None = None,
        *,
        input: Any = ...,
        output: Any = ...,
        handler: Handler | None = None,
        **options: Unpack[TaskOptions],
    ) -> None: ...

    def __init__(
        self,
        name: str | None = None,
        *,
        input: Any = UNSTATED,
        output: Any = UNSTATED,
        handler: Handler | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        self.definition = define_task(name=name, handler=handler, types=(input, output), options=options)
        registry.add(self.definition)

    @property
    def name(self) -> str:
        return self.definition.name

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the handler here and now; an async one gives its coroutine."""
        if self.definition.handler is None:
            raise UnknownName(f"task {self.name!r} has no handler in this process; use .run()")
        return self.definition.handler(*args, **kwargs)

    @overload
    def run(self: Task[None, O], input: None = None, **options: Unpack[RunOptions]) -> TaskHandle[O]: ...
    @overload
    def run(self, input: I | JsonForm, **options: Unpack[RunOptions]) -> TaskHandle[O]: ...

    def run(self, input: Any = None, **options: Unpack[RunOptions]) -> TaskHandle[O]:
        """Queue a run, in the current transaction of the database; return its handle.

        The input may be the typed value or its JSON form. Raise PayloadError, naming the field, if it does not fit.
        """
        return run_definition(self.definition, [input], check_options(options))[0]

    def run_many(self, inputs: Iterable[I | JsonForm], **options: Unpack[RunOptions]) -> list[TaskHandle[O]]:
        """Queue one run per input, in one round trip per few thousand; return their handles, in order.

        All of them are queued, or none.
        """
        checked = check_options(options)
        if checked.has_key:
            raise InvalidOption("a key names one run: use run() for each input that has one")
        return run_definition(self.definition, inputs, checked)

    @overload
    async def arun(self: Task[None, O], input: None = None, **options: Unpack[RunOptions]) -> TaskHandle[O]: ...
    @overload
    async def arun(self, input: I | JsonForm, **options: Unpack[RunOptions]) -> TaskHandle[O]: ...

    async def arun(self, input: Any = None, **options: Unpack[RunOptions]) -> TaskHandle[O]:
        """Async twin of `run`."""
        return await sync_to_async(self.run)(input, **options)

    async def arun_many(self, inputs: Iterable[I | JsonForm], **options: Unpack[RunOptions]) -> list[TaskHandle[O]]:
        """Async twin of `run_many`."""
        return await sync_to_async(self.run_many)(inputs, **options)


def run_definition(definition: TaskDefinition, inputs: Iterable[Any], options: CheckedOptions) -> list[TaskHandle[Any]]:
    """Queue one run per input of a task that this process declares, making sure that the database knows it."""
    registry.refuse_conflict(definition.name)
    starter = Starter(
        what=f"task {definition.name!r}",
        codec=definition.input_codec,
        start=partial(_run_by_name, definition.name, options),
        register=partial(register_tasks, [definition], using=options.using),
        using=options.using,
    )
    run_ids = starter.start_all(inputs)
    return [TaskHandle(run_id, using=options.using, definition=definition) for run_id in run_ids]


def _run_by_name(name: str, options: CheckedOptions, inputs: list[str]) -> list[int] | None:
    """Queue runs of a task by name; None if the database does not know it."""
    answers = engine.run_tasks(
        name,
        inputs,
        queue=options.queue,
        priority=options.priority,
        headers=options.headers,
        run_at=options.run_at,
        delay=options.delay,
        concurrency_keys=for_each(options.concurrency_key, inputs),
        idempotency_keys=for_each(options.idempotency_key, inputs),
        debounce_keys=for_each(options.debounce_key, inputs),
        expires_at=options.expires_at,
        tags=options.tags,
        all_events=get_settings().events == "all",
        using=options.using,
    )
    if answers[0].verdict is RunVerdict.UNKNOWN:
        return None
    if not all(answer.verdict in ENDED_AT_ONCE for answer in answers):
        _wake(answers[0], options)
    return [answer.run_id for answer in answers if answer.run_id is not None]


def _wake(answer: RunAnswer, options: CheckedOptions) -> None:
    # The database knows whether it is due: a delay may be 0, and a time past.
    if answer.is_awaited is None or options.expires_at is not None:
        wake_tick_after_commit(using=options.using)
    if answer.is_awaited is not None:
        wake_after_commit(answer.queue or "default", is_awaited=answer.is_awaited, using=options.using)


def run_task(name: str, input: Any = None, **options: Unpack[RunOptions]) -> TaskHandle[Any]:
    """Queue a run of a task by its name, also of one that only other processes declare.

    The input is checked against the task's type where this process declares it. Raise UnknownName for a name that
    neither this process nor the database knows.
    """
    checked = check_options(options)
    if name in registry.tasks:
        return run_definition(registry.task(name), [input], checked)[0]
    encoded = encode_any(input, name="input", max_bytes=get_settings().max_payload)
    run_ids = _run_by_name(name, checked, [encoded])
    if run_ids is None:
        raise UnknownName(f"no task named {name!r} is registered in database {checked.using!r}")
    return TaskHandle(run_ids[0], using=checked.using)


async def arun_task(name: str, input: Any = None, **options: Unpack[RunOptions]) -> TaskHandle[Any]:
    """Async twin of `run_task`."""
    return await sync_to_async(run_task)(name, input, **options)
