"""Wakes callers that wait for runs: one LISTEN connection per process and database, while anyone waits.

Only a hint: whoever waits also looks by itself, so a dead listener costs time and nothing else.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from django.db import connections

from catbird_django.conf import get_settings
from catbird_django.engine.call import DATABASE_TROUBLE
from catbird_django.engine.notifications import LIVE, Listener

logger = logging.getLogger("catbird.client")

TASK_RUNS = "task_runs "
LINGER = 5.0  # seconds for which the listener stays when nobody waits, in case someone soon does


class Watch:
    """The waiting callers of one database, and the thread that listens for them."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._waiting: defaultdict[int, set[threading.Event]] = defaultdict(set)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def add(self, run_id: int, event: threading.Event) -> None:
        with self._lock:
            self._waiting[run_id].add(event)
            # A thread does not survive a fork, though the object does.
            if self._thread is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._listen, name="catbird-waiting", daemon=True)
                self._thread.start()

    def remove(self, run_id: int, event: threading.Event) -> None:
        with self._lock:
            self._waiting[run_id].discard(event)
            if not self._waiting[run_id]:
                del self._waiting[run_id]

    def _listen(self) -> None:
        settings = get_settings()
        try:
            with Listener([LIVE], using=self._using, dsn=settings.listen_dsn) as listener:
                self._wake(None)  # what ended before we listened
                while True:
                    payloads = list(listener.payloads(timeout=LINGER))
                    for payload in payloads:
                        self._wake(payload)
                    if not payloads and self._gave_up():
                        return
        except (psycopg.Error, *DATABASE_TROUBLE) as error:
            logger.warning("cannot listen, callers poll instead", extra={"database": self._using, "error": str(error)})
            with self._lock:
                self._thread = None  # the next caller tries again
        finally:
            connections.close_all()

    def _gave_up(self) -> bool:
        """Whether nobody waits any more; then the next caller starts a new thread."""
        with self._lock:
            if self._waiting:
                return False
            self._thread = None
            return True

    def _wake(self, payload: str | None) -> None:
        """Wake those who wait for the runs in the payload; everyone, when it names none."""
        with self._lock:
            if payload and payload.startswith(TASK_RUNS):
                run_ids = {int(run_id) for run_id in payload.removeprefix(TASK_RUNS).split(",")}
                woken = [event for run_id in run_ids & self._waiting.keys() for event in self._waiting[run_id]]
            else:
                woken = [event for events in self._waiting.values() for event in events]
        for event in woken:
            event.set()


_watches: dict[str, Watch] = {}


@contextmanager
def watch_task_run(run_id: int, *, using: str) -> Iterator[threading.Event]:
    """An event that is set when the run may have ended."""
    event = threading.Event()
    if not get_settings().notify:
        yield event
        return
    watch = _watches.setdefault(using, Watch(using))
    watch.add(run_id, event)
    try:
        yield event
    finally:
        watch.remove(run_id, event)
