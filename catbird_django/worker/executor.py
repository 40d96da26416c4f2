"""Runs one claim and says how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from catbird_django.client.context import Reporter
from catbird_django.client.interrupts import Cancel, CancelRequested, Retry, Snooze
from catbird_django.engine.tasks import TaskClaim
from catbird_django.worker.handlers import TaskHandler
from catbird_django.worker.outcome import Canceled, Completed, Outcome, Released, failure

logger = logging.getLogger("catbird.worker")


class Executor:
    """Calls handlers: decoded arguments in, an outcome out. Whatever a handler raises is an outcome too."""

    def __init__(
        self,
        handlers: dict[int, TaskHandler],
        *,
        max_payload: int,
        is_canceled: Callable[[TaskClaim], bool],
        reporter_for: Callable[[TaskClaim], Reporter],
    ) -> None:
        self._handlers = handlers
        self._max_payload = max_payload
        self._is_canceled = is_canceled
        self._reporter_for = reporter_for

    def run(self, claim: TaskClaim) -> Outcome:
        """Run a sync handler on the current thread."""
        handler = self._handlers[claim.task_id]
        try:
            return self._completed(handler, claim, handler.function(*self._arguments(handler, claim)))
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises, SystemExit included, is its failure
            return self._failed(handler, claim, error)
        finally:
            reset_connections()

    async def run_async(self, claim: TaskClaim) -> Outcome:
        """Run an async handler on the current loop.

        In a thread-sensitive context of its own: otherwise all handlers would share one thread for sync_to_async, and
        with it one database connection (W7).
        """
        handler = self._handlers[claim.task_id]
        async with ThreadSensitiveContext() as context:
            try:
                outcome: Outcome = self._completed(
                    handler, claim, await handler.function(*self._arguments(handler, claim))
                )
            except BaseException as error:  # noqa: BLE001 - as above; CancelledError included
                outcome = self._failed(handler, claim, error)
            await _close_connections_of(context)
        return outcome

    def _arguments(self, handler: TaskHandler, claim: TaskClaim) -> list[Any]:
        if self._is_canceled(claim):  # while it waited for its turn
            raise CancelRequested
        return handler.arguments(claim, self._reporter_for(claim))

    def _completed(self, handler: TaskHandler, claim: TaskClaim, value: Any) -> Completed:
        return Completed(claim, handler.output_codec.encode(value, name="output", max_bytes=self._max_payload))

    def _failed(self, handler: TaskHandler, claim: TaskClaim, error: BaseException) -> Outcome:
        """What becomes of an attempt that raised."""
        if self._is_canceled(claim):
            return Released(claim)  # whatever is reported of it now, the run ends canceled
        if isinstance(error, Cancel):
            return Canceled(claim, error.reason)
        if isinstance(error, Snooze):
            return Released(claim, error.delay)
        retry_in = self._retry_in(handler, claim, error)
        # What is tried again is worth a line; what has failed for good, its traceback.
        details = {"task": handler.name, "run_id": claim.run_id, "attempt": claim.attempt}
        if retry_in is None:
            logger.error("task failed", extra=details, exc_info=error)
        else:
            logger.warning("task failed, trying again", extra={**details, "error": type(error).__name__})
        return failure(claim, error, retry_in)

    def _retry_in(self, handler: TaskHandler, claim: TaskClaim, error: BaseException) -> timedelta | None:
        try:
            delay = handler.retry.delay_after(error, claim.failure_count)
        except Exception:
            logger.exception("backoff raised, no retry", extra={"task": handler.name, "run_id": claim.run_id})
            return None
        if delay is not None and isinstance(error, Retry) and error.delay is not None:
            return error.delay
        return delay


async def _close_connections_of(context: ThreadSensitiveContext) -> None:
    """Close what the handler's sync_to_async calls have opened, on the thread that they ran on."""
    if context not in SyncToAsync.context_to_thread_executor:
        return
    # A handler may have been cancelled as it returned; that must not keep its connections open.
    for _ in range(2):
        with contextlib.suppress(asyncio.CancelledError):
            await sync_to_async(connections.close_all)()
            return


class _Connected(threading.local):
    """Whether a connection was ever opened on this thread."""

    here = False


_connected = _Connected()


@receiver(connection_created, dispatch_uid="catbird.worker.executor")
def _note_connection(**_: object) -> None:
    _connected.here = True


def reset_connections() -> None:
    """Leave no trace of a handler on this thread's connections: no open transaction, no dead socket (W7)."""
    if not _connected.here:
        return  # asking Django for this thread's connections takes longer than a small handler
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block or (connection.connection is not None and not connection.get_autocommit()):
            connection.close()
            # Inside atomic() Django keeps the closed connection, to refuse further queries. Forget the whole wrapper.
            del connections[connection.alias]
        else:
            connection.close_if_unusable_or_obsolete()
