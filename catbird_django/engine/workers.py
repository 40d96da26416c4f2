"""`sql/workers.sql`, called from Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from catbird_django.engine.call import FleetingFunction, Function

REGISTER = Function(
    "cb_register_worker",
    boot_id="uuid",
    host="text",
    pid="integer",
    version="text",
    queues="jsonb",
    handlers="jsonb",
    slots="integer",
    worker_id="bigint",
)
RENEW = Function("cb_renew_worker", worker_id="bigint")
COUNT_ABANDONED = Function("cb_count_abandoned", worker_id="bigint", count="integer")
DRAIN = Function("cb_drain_worker", worker_id="bigint")
STOP = Function("cb_stop_worker", worker_id="bigint")
ANNOUNCE_SLEEP = FleetingFunction("cb_announce_sleep", worker_id="bigint")
PING = Function("cb_ping_worker", worker_id="bigint")
SET_LISTENING = Function("cb_set_listening", worker_id="bigint", is_listening="boolean")
WRITERS = Function("cb_writers")
WAKE = FleetingFunction("cb_wake_workers", queues="text[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """A worker process as it presents itself."""

    boot_id: UUID
    host: str
    pid: int
    version: str
    queues: Sequence[str] | None
    handlers: Sequence[str]
    slots: int


class Writers(NamedTuple):
    """Which transactions are writing: all before `oldest` have ended, none from `next` on had begun."""

    oldest: int
    next: int


def register_worker(worker: WorkerRow, *, again_as: int | None = None, using: str) -> int:
    """Enter a worker process; return its id. With `again_as`, one whose row was removed while it was not heard of."""
    worker_id: int = REGISTER.value(
        using,
        worker_id=again_as,
        boot_id=worker.boot_id,
        host=worker.host,
        pid=worker.pid,
        version=worker.version,
        queues=None if worker.queues is None else json.dumps(sorted(worker.queues)),
        handlers=json.dumps(sorted(worker.handlers)),
        slots=worker.slots,
    )
    return worker_id


def renew_worker(worker_id: int, *, using: str) -> bool:
    """Say that this worker is alive; False when its row is gone, or locked just now."""
    return bool(RENEW.value(using, worker_id=worker_id))


def count_abandoned(worker_id: int, count: int, *, using: str) -> bool:
    """Say how many handlers this worker has abandoned so far; False when its row is gone, or locked just now."""
    return bool(COUNT_ABANDONED.value(using, worker_id=worker_id, count=count))


def drain_worker(worker_id: int, *, using: str) -> bool:
    """Say that this worker claims no more; False when its row is gone, or locked just now."""
    return bool(DRAIN.value(using, worker_id=worker_id))


def stop_worker(worker_id: int, *, using: str) -> bool:
    """Say that this worker has stopped; False when one of its rows is locked just now."""
    return bool(STOP.value(using, worker_id=worker_id))


def ping_worker(worker_id: int, *, using: str) -> None:
    """Send this worker a notification, to see whether it arrives."""
    PING.rows(using, worker_id=worker_id)


def set_listening(worker_id: int, is_listening: bool, *, using: str) -> bool:
    """Say whether notifications reach this worker; False when its row is gone, or locked just now."""
    return bool(SET_LISTENING.value(using, worker_id=worker_id, is_listening=is_listening))


def announce_sleep(worker_id: int, *, using: str) -> bool:
    """Announce that this worker is about to sleep; it must look once more afterwards. False: it must poll."""
    return bool(ANNOUNCE_SLEEP.value(using, worker_id=worker_id))


def find_writers(*, using: str) -> Writers:
    """See which transactions are writing just now."""
    [row] = WRITERS.rows(using)
    return Writers(*row)


def wake_workers(queues: Sequence[str], *, using: str) -> int:
    """Wake the workers that sleep and serve any of these queues; return how many slept."""
    return int(WAKE.value(using, queues=list(queues)))
