"""Runs one claim and says how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import django.db
from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections

from catbird_django.client.context import Reporter
from catbird_django.client.interrupts import Cancel, CancelRequested, CompleteEarly, Retry, Skip, Snooze
from catbird_django.engine.items import ItemClaim
from catbird_django.engine.steps import Claim, StepClaim
from catbird_django.errors import DefinitionError, HandlerTimeout
from catbird_django.failpoints import reach
from catbird_django.worker.atomic import Transactions
from catbird_django.worker.doubts import Doubts, InDoubt
from catbird_django.worker.handler_connections import distrust_connections, reset_connections
from catbird_django.worker.handlers import Handler
from catbird_django.worker.item_lists import Unread
from catbird_django.worker.outcome import (
    Completed,
    EndedEarly,
    Outcome,
    Released,
    Skipped,
    canceled,
    ended_early,
    failure,
)
from catbird_django.worker.watchdog import Abandoned, Attempt, Watchdog

logger = logging.getLogger("catbird.worker")

RunInProcess = Callable[[Handler, Claim, Reporter], Outcome]

PAUSE_AFTER_TROUBLE = timedelta(seconds=1)
"""Before another attempt, when the database did not give what a handler takes."""


class Executor:
    """Calls handlers: decoded arguments in, an outcome out. Whatever a handler raises is an outcome too."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        max_payload: int,
        is_canceled: Callable[[Claim], bool],
        reporter_for: Callable[[Claim], Reporter],
        watchdog: Watchdog,
        doubts: Doubts | None = None,
        run_in_process: RunInProcess | None = None,
        transactions: Transactions | None = None,
        interrupt_grace: timedelta = timedelta.max,
        left_thread: Callable[[Claim], None] = lambda _: None,
        clean_up: Callable[[], None] = reset_connections,
    ) -> None:
        self._clean_up = clean_up
        self._interrupt_grace = interrupt_grace.total_seconds()
        self._left_thread = left_thread
        self._run_in_process = run_in_process
        self._transactions = transactions
        self._watchdog = watchdog
        self._handlers = handlers
        self._max_payload = max_payload
        self._is_canceled = is_canceled
        self._doubts = doubts or Doubts({})
        self._reporter_for = reporter_for

    def run(self, claim: Claim) -> Outcome:
        """Run a sync handler on the current thread. Raise Abandoned if its claim was settled meanwhile.

        An isolated handler, sync or async, runs in another process, and this thread only waits for it.
        """
        handler = self._handlers[claim.handler_id]
        if handler.is_isolated and self._run_in_process is not None:
            return self._run_isolated(self._run_in_process, handler, claim)
        try:
            if handler.is_atomic and self._transactions is not None:
                return self._transactions.run(claim, lambda: self._done(handler, claim))
            return self._done(handler, claim)
        except Abandoned:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises, SystemExit included, is its failure
            return self._failed(handler, claim, error)
        finally:
            self._clean_up()

    def _done(self, handler: Handler, claim: Claim) -> Completed | EndedEarly:
        """Call a sync handler; say what came of it, if it has done its work."""
        try:
            arguments = self._arguments(handler, claim)
            value = self._call_in_time(handler, claim, arguments)
        except CompleteEarly as early:
            return self._ended_early(handler, claim, early)
        return self._completed(handler, claim, value)

    def _run_isolated(self, run_in_process: RunInProcess, handler: Handler, claim: Claim) -> Outcome:
        try:
            self._refuse_late(claim)
            return run_in_process(handler, claim, self._reporter_for(claim))
        except BaseException as error:  # noqa: BLE001 - as above
            return self._failed(handler, claim, error)
        finally:
            self._clean_up()

    def _call_in_time(self, handler: Handler, claim: Claim, arguments: list[Any]) -> Any:
        """Call a sync handler under the eyes of the watchdog."""
        timeout = handler.options.timeout
        if timeout is None:
            return handler.function(*arguments)
        attempt = Attempt(claim, timeout)
        try:
            try:
                self._watchdog.watch(attempt)
                return handler.function(*arguments)
            finally:
                self._watchdog.end(attempt)
        except BaseException as error:
            # The interrupt may have struck while the attempt was being ended; there is only one, so this time it is.
            self._watchdog.end(attempt)
            if attempt.was_interrupted:
                raise _as_timeout(error, timeout) from error.__cause__
            raise
        finally:
            if attempt.was_interrupted:
                distrust_connections()

    def abandon(self, claim: Claim) -> Outcome:
        """The outcome of an attempt that could not be stopped."""
        handler = self._handlers[claim.handler_id]
        timeout = handler.options.timeout or timedelta(0)
        return self._failed(handler, claim, HandlerTimeout(f"{_too_long(timeout)}, and could not be stopped"))

    async def run_async(self, claim: Claim, threads: ThreadSensitiveContext) -> Outcome:
        """Run an async handler on the current loop; `threads` is where its sync_to_async calls run."""
        handler = self._handlers[claim.handler_id]
        try:
            arguments = await self._arguments_on_loop(handler, claim)
            outcome: Outcome = await self._done_async(handler, claim, arguments)
        except BaseException as error:  # noqa: BLE001 - as above; CancelledError included
            outcome = self._failed(handler, claim, error)
        if threads in SyncToAsync.context_to_thread_executor and not await self._close_connections(threads):
            self._left_thread(claim)
        return outcome

    async def _done_async(self, handler: Handler, claim: Claim, arguments: list[Any]) -> Completed | EndedEarly:
        try:
            value = await _await_in_time(handler, arguments)
        except CompleteEarly as early:
            return self._ended_early(handler, claim, early)
        return self._completed(handler, claim, value)

    async def _close_connections(self, threads: ThreadSensitiveContext) -> bool:
        """Close what the handler's sync_to_async calls have opened, on their thread; False if one keeps it busy.

        Cancelling the handler does not stop that call. It keeps its thread, and the slot goes on without it (T8).
        """
        thread = SyncToAsync.context_to_thread_executor[threads]
        closed = asyncio.wrap_future(thread.submit(connections.close_all))
        # A handler may have been cancelled as it returned; that must not keep its connections open.
        for _ in range(2):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([closed], timeout=self._interrupt_grace)
                break
        if not closed.done():
            del SyncToAsync.context_to_thread_executor[threads]
            thread.shutdown(wait=False)  # after what it does, and after the closing
        return closed.done()

    def _arguments(self, handler: Handler, claim: Claim) -> list[Any]:
        self._refuse_late(claim)
        arguments = handler.arguments(claim, self._reporter_for)
        reach("before-handler")
        return arguments

    async def _arguments_on_loop(self, handler: Handler, claim: Claim) -> list[Any]:
        """The same; lists of maps are read from the database, and that is done on a thread."""
        if isinstance(claim, StepClaim | ItemClaim) and claim.lists:
            return await sync_to_async(self._arguments)(handler, claim)
        return self._arguments(handler, claim)

    def _refuse_late(self, claim: Claim) -> None:
        """Refuse what was canceled, or should not be begun any more, while it waited for its turn."""
        if self._is_canceled(claim):
            raise CancelRequested
        if claim.handler_id in self._doubts.tasks:
            raise InDoubt

    def _completed(self, handler: Handler, claim: Claim, value: Any) -> Completed:
        reach("after-handler")
        output = handler.output_codec.encode(value, name="output", max_bytes=self._max_payload)
        return Completed(claim, output, handler.run_inline(claim, output, max_payload=self._max_payload))

    def _ended_early(self, handler: Handler, claim: Claim, early: CompleteEarly) -> EndedEarly:
        """Say how a handler ends its flow; raise what is wrong with that."""
        if handler.early_codec is None:
            raise DefinitionError(
                f"{handler.name!r} has called complete_early: only a step of a flow can end it; a task returns"
            ).with_traceback(early.__traceback__)
        output = handler.early_codec.encode(early.output, name="output of the flow", max_bytes=self._max_payload)
        return ended_early(claim, output, early.reason)

    def _failed(self, handler: Handler, claim: Claim, error: BaseException) -> Outcome:
        """What becomes of an attempt that raised."""
        if self._is_canceled(claim):
            return Released(claim)  # whatever is reported of it now, the run ends canceled
        if isinstance(error, Cancel):
            return canceled(claim, error.reason)
        if isinstance(error, InDoubt):
            return Released(claim)
        if isinstance(error, Snooze):
            return Released(claim, error.delay)
        if isinstance(error, Unread):
            trouble = {"run_id": claim.run_id, "error": str(error)}
            logger.warning("outputs of a map cannot be read, trying again", extra=trouble)
            return Released(claim, PAUSE_AFTER_TROUBLE)
        if isinstance(error, Skip):
            if handler.may_skip:
                return Skipped(claim, error.reason)
            error = _not_allowed_to_skip(handler, error)
        retry_in = self._retry_in(handler, claim, error)
        # What is tried again is worth a line; what has failed for good, its traceback.
        details: dict[str, Any] = {handler.what: handler.name, "run_id": claim.run_id, "attempt": claim.attempt}
        if isinstance(claim, ItemClaim):
            details["index"] = claim.place
        if retry_in is None:
            logger.error(f"{handler.what} failed", extra=details, exc_info=error)
        else:
            logger.warning(f"{handler.what} failed, trying again", extra={**details, "error": type(error).__name__})
        return failure(claim, error, retry_in)

    def _retry_in(self, handler: Handler, claim: Claim, error: BaseException) -> timedelta | None:
        try:
            is_asked_for = isinstance(error, Retry)
            delay = handler.retry.delay_after(error, claim.failure_count, is_asked_for=is_asked_for)
        except Exception:
            logger.exception("backoff raised, no retry", extra={handler.what: handler.name, "run_id": claim.run_id})
            return None
        if delay is not None and isinstance(error, Retry) and error.delay is not None:
            return error.delay
        return delay


async def _await_in_time(handler: Handler, arguments: list[Any]) -> Any:
    """Call an async handler, and cancel it when its time is over."""
    timeout = handler.options.timeout
    if timeout is None:
        return await handler.function(*arguments)
    try:
        async with asyncio.timeout(timeout.total_seconds()) as limit:
            return await handler.function(*arguments)
    except TimeoutError as error:
        if limit.expired():
            raise HandlerTimeout(_too_long(timeout)) from error
        raise  # the handler's own


def _not_allowed_to_skip(handler: Handler, skip: Skip) -> DefinitionError:
    """What is wrong with a handler that raises Skip although nobody expects it to."""
    if handler.what == "task":
        advice = "only a step of a flow can be skipped; a task can end by returning, or raise Cancel"
    else:
        advice = "it is not declared with may_skip=True"
    return DefinitionError(f"{handler.name!r} has raised Skip: {advice}").with_traceback(skip.__traceback__)


def _as_timeout(error: BaseException, timeout: timedelta) -> BaseException:
    """What an interrupted handler has raised, said plainly: its query was canceled because of the timeout, too."""
    if isinstance(error, django.db.Error | Unread):
        error = HandlerTimeout(_too_long(timeout)).with_traceback(error.__traceback__)
    elif isinstance(error, HandlerTimeout) and not error.args:
        error.args = (_too_long(timeout),)  # an exception raised in another thread comes without
    return error


def _too_long(timeout: timedelta) -> str:
    return f"took longer than {timeout.total_seconds():g} s"
