"""After the commit: does a worker of that queue sleep? Only then is it notified (R9a)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connections, transaction

from catbird_django.conf import get_settings
from catbird_django.engine import tick
from catbird_django.engine import workers as engine
from catbird_django.engine.call import DATABASE_TROUBLE

logger = logging.getLogger("catbird.client")


@dataclass(frozen=True, slots=True)
class WakeUp:
    """Wake whoever sleeps and serves this queue."""

    queue: str
    using: str

    def __call__(self) -> None:
        with _only_logged("workers were not woken, they will poll"):
            engine.wake_workers([self.queue], using=self.using)


@dataclass(frozen=True, slots=True)
class WakeTick:
    """Tell whoever does the upkeep that a run may be due earlier than it knows."""

    using: str

    def __call__(self) -> None:
        with _only_logged("the upkeep was not woken, it will come by itself"):
            tick.wake_tick(using=self.using)


Wake = WakeUp | WakeTick


def wake_after_commit(queue: str, *, is_awaited: bool = True, using: str) -> None:
    """Wake sleeping workers of a queue once the current transaction is committed; now, if there is none.

    `is_awaited` is what the call that queued the work has seen. Where it was a transaction of its own, that is enough:
    who has announced since then looks once more. At the end of a longer transaction it is asked again.
    """
    if get_settings().notify and (is_awaited or connections[using].in_atomic_block):
        _once_after_commit(WakeUp(queue, using))


def _once_after_commit(wake_up: Wake) -> None:
    connection = connections[wake_up.using]
    if not connection.in_atomic_block and not connection.get_autocommit():
        return  # the caller commits by hand, and Django cannot tell us when: workers find the work by polling
    if not _is_last_on_commit(wake_up):
        transaction.on_commit(wake_up, using=wake_up.using)


@contextmanager
def _only_logged(message: str) -> Iterator[None]:
    """The work is committed by now: that nobody could be woken must not look to the caller as if it were not."""
    try:
        yield
    except DATABASE_TROUBLE as error:
        logger.warning(message, extra={"error": str(error)})


def wake_tick_after_commit(*, using: str) -> None:
    """Tell whoever does the upkeep, after the commit, that a run has a time to be made due at."""
    if get_settings().notify:
        _once_after_commit(WakeTick(using))


def _is_last_on_commit(wake_up: Wake) -> bool:
    """Whether the same wake-up was just planned: a loop of `.run()` in one transaction needs only one.

    It must not be undone by a savepoint that leaves this one standing.
    """
    connection = connections[wake_up.using]
    if not connection.run_on_commit:
        return False
    savepoints, planned, *_ = connection.run_on_commit[-1]
    return planned == wake_up and savepoints <= set(connection.savepoint_ids)
