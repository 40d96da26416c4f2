"""A handle on one run: ask how it is, or wait for its output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Generator
from datetime import timedelta
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from asgiref.sync import sync_to_async
from django.db import connections

from catbird_django.client.cancel import cancel_task
from catbird_django.client.rerun import rerun_task
from catbird_django.client.waiting import watch_run
from catbird_django.codec import Codec, decode_any
from catbird_django.conf import get_settings
from catbird_django.definitions.task import TaskDefinition
from catbird_django.engine.tasks import read_task_run
from catbird_django.errors import (
    RunCanceled,
    RunError,
    RunExpired,
    RunNotFound,
    RunSkipped,
    TaskFailed,
    WaitInTransaction,
    WaitTimeout,
)
from catbird_django.statuses import TERMINAL_STATUSES, RunKind, TaskStatus

O = TypeVar("O")  # noqa: E741 - as in Task[I, O]

ENDED_WITHOUT_OUTPUT: dict[str, type[RunError]] = {
    "canceled": RunCanceled,
    "skipped": RunSkipped,
    "expired": RunExpired,
}


class RunState(Protocol):
    """What became of a run so far, whatever its kind."""

    @property
    def status(self) -> str: ...
    @property
    def output(self) -> str | None: ...
    @property
    def error(self) -> str | None: ...


class Definition(Protocol):
    """A task or a flow, as far as its runs' outputs are concerned."""

    @property
    def name(self) -> str: ...
    @property
    def output_codec(self) -> Codec[Any]: ...


class Deadline:
    """Until when to wait, and how long between two looks."""

    def __init__(self, timeout: float | timedelta | None) -> None:
        self._timeout = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        self._end = None if self._timeout is None else time.monotonic() + self._timeout
        self._poll = get_settings().poll_interval.total_seconds()

    def next_pause(self, run_id: int, status: str) -> float:
        """How long to wait for a hint before looking again; raise WaitTimeout when the time is over."""
        left = self._poll if self._end is None else min(self._poll, self._end - time.monotonic())
        if left <= 0:
            raise WaitTimeout(f"run {run_id} is still {status} after {self._timeout} s; it goes on")
        return left


class RunHandle(Generic[O]):
    """One run, of a task or of a flow: what the handles of both have in common."""

    _kind: ClassVar[RunKind]

    def __init__(self, id: int, *, using: str | None = None, definition: Definition | None = None) -> None:
        self.id = id
        self._using = using or get_settings().database
        self._definition = definition

    @property
    def using(self) -> str:
        """The alias of the database that the run is in."""
        return self._using

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._definition.name if self._definition else 'run'} {self.id}>"

    def wait(self, timeout: float | timedelta | None = None) -> O:
        """Wait until the run has ended and return its output.

        Raise TaskFailed or FlowFailed, RunCanceled, RunSkipped or RunExpired when it ended without one, WaitTimeout
        when it did not end within `timeout` seconds (it goes on), and WaitInTransaction inside a transaction: the run
        that it started is not even visible to workers before the commit.
        """
        state = self._read()
        if state.status not in TERMINAL_STATUSES:
            self._refuse_transaction()
            state = self._wait_until_ended(Deadline(timeout))
        return self._output(state)

    async def await_(self, timeout: float | timedelta | None = None) -> O:
        """Async twin of `wait`."""
        state = await sync_to_async(self._read)()
        if state.status not in TERMINAL_STATUSES:
            await sync_to_async(self._refuse_transaction)()
            state = await self._await_until_ended(Deadline(timeout))
        return self._output(state)

    def __await__(self) -> Generator[Any, None, O]:
        return self.await_().__await__()

    def _find(self) -> RunState | None:
        """Read what became of the run; None if there is none."""
        raise NotImplementedError

    def _failure(self, error: dict[str, Any]) -> RunError:
        """The error that says that the run has failed."""
        raise NotImplementedError

    def _read(self) -> RunState:
        state = self._find()
        if state is None:
            raise RunNotFound(f"there is no {self._kind.value} run {self.id} in database {self._using!r}")
        return state

    def _refuse_transaction(self) -> None:
        if connections[self._using].in_atomic_block:
            raise WaitInTransaction(
                f"run {self.id} has not ended, and inside a transaction it cannot be seen to end: "
                f"wait after the commit, or in transaction.on_commit()"
            )

    def _wait_until_ended(self, deadline: Deadline) -> RunState:
        hint = threading.Event()
        # Watch before reading, or an end between the two goes unnoticed.
        with watch_run(self._kind, self.id, hint.set, using=self._using):
            while (state := self._read()).status not in TERMINAL_STATUSES:
                hint.wait(deadline.next_pause(self.id, state.status))
                hint.clear()
        return state

    async def _await_until_ended(self, deadline: Deadline) -> RunState:
        hint, loop = asyncio.Event(), asyncio.get_running_loop()
        with watch_run(self._kind, self.id, lambda: loop.call_soon_threadsafe(hint.set), using=self._using):
            while (state := await sync_to_async(self._read)()).status not in TERMINAL_STATUSES:
                pause = deadline.next_pause(self.id, state.status)  # raises a TimeoutError of its own
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(hint.wait(), pause)
                hint.clear()
        return state

    def _output(self, state: RunState) -> O:
        if state.status == "failed":
            raise self._failure(json.loads(state.error or "{}"))
        if state.status in ENDED_WITHOUT_OUTPUT:
            raise ENDED_WITHOUT_OUTPUT[state.status](f"run {self.id} was {state.status}", run_id=self.id)
        text = state.output or "null"
        if self._definition is None:
            return cast("O", decode_any(text, name="output"))
        return cast("O", self._definition.output_codec.decode(text, name="output"))


class TaskHandle(RunHandle[O]):
    """One run of a task. A handle can be made again from the id of the run."""

    _kind = RunKind.TASK

    def __init__(self, id: int, *, using: str | None = None, definition: TaskDefinition | None = None) -> None:
        super().__init__(id, using=using, definition=definition)
        self._task = definition

    def status(self) -> TaskStatus:
        """Return how the run is now."""
        return TaskStatus(self._read().status)

    def cancel(self, reason: str = "", *, actor: str = "") -> TaskStatus:
        """Cancel the run; return how it is afterwards.

        A queued run is canceled at once. A started one is `canceling` until its handler has stopped: an async handler
        is cancelled, a sync one sees `ctx.is_canceled`. A run that has ended stays as it is.
        """
        return cancel_task(self.id, reason=reason, actor=actor, using=self._using)

    def retry(self, *, actor: str = "") -> TaskHandle[O]:
        """Queue a new run with the input and options of this one, which has ended; return the new one's handle.

        It keeps the concurrency key; when a live run has that key, its handle is returned. It drops the idempotency
        key. Raise RunNotFinished if this run is live.
        """
        run_id = rerun_task(self.id, actor=actor, using=self._using)
        return TaskHandle(run_id, using=self._using, definition=self._task)

    async def aretry(self, *, actor: str = "") -> TaskHandle[O]:
        """Async twin of `retry`."""
        return await sync_to_async(self.retry)(actor=actor)

    async def acancel(self, reason: str = "", *, actor: str = "") -> TaskStatus:
        """Async twin of `cancel`."""
        return await sync_to_async(self.cancel)(reason, actor=actor)

    async def astatus(self) -> TaskStatus:
        """Async twin of `status`."""
        return await sync_to_async(self.status)()

    def _find(self) -> RunState | None:
        return read_task_run(self.id, using=self._using)

    def _failure(self, error: dict[str, Any]) -> RunError:
        return TaskFailed(f"run {self.id} failed: {error.get('message', '')}", run_id=self.id, error=error)
