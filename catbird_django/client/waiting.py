"""Wakes callers that wait for runs: one LISTEN connection per process and database, while anyone waits.

Only a hint: whoever waits also looks by itself, so a dead listener costs time and nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
from django.db import connections

from catbird_django.conf import get_settings
from catbird_django.engine.call import DATABASE_TROUBLE
from catbird_django.engine.notifications import LIVE, Listener
from catbird_django.engine.watching import watch
from catbird_django.engine.workers import find_writers
from catbird_django.statuses import RunKind

logger = logging.getLogger("catbird.client")

KINDS = {"task_runs": RunKind.TASK, "flow_runs": RunKind.FLOW}  # as notifications name them
WATCH_FOR = timedelta(seconds=30)
WAIT_FOR_UNAWARE = 5.0  # seconds
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # between two looks at whether they have ended
LINGER = 1.0  # seconds for which the listener stays when nobody waits, in case someone soon does

Wake = Callable[[], object]
Run = tuple[RunKind, int]  # its kind and its id


class Watch:
    """The waiting callers of one database, and the thread that listens for them."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._waiting: defaultdict[Run, set[Wake]] = defaultdict(set)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, run: Run, wake: Wake) -> None:
        with self._lock:
            self._waiting[run].add(wake)
            # Threads do not survive a fork, though this object does.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._listen, name="catbird-waiting", daemon=True)
                self._thread.start()

    def remove(self, run: Run, wake: Wake) -> None:
        with self._lock:
            self._waiting[run].discard(wake)
            if not self._waiting[run]:
                del self._waiting[run]

    def _listen(self) -> None:
        settings = get_settings()
        try:
            with Listener([LIVE], using=self._using, dsn=settings.listen_dsn) as listener:
                told_at = self._tell_that_we_watch()
                self._wake(None)  # what ended before we listened
                self._wake_after_unaware(listener)
                while True:
                    if time.monotonic() - told_at > WATCH_FOR.total_seconds() / 3:
                        told_at = self._tell_that_we_watch()
                    payloads = list(listener.payloads(timeout=LINGER))
                    for payload in payloads:
                        self._wake(payload)
                    if not payloads and self._gave_up():
                        return
        except (psycopg.Error, *DATABASE_TROUBLE) as error:
            logger.warning("cannot listen, callers poll instead", extra={"database": self._using, "error": str(error)})
        finally:
            connections.close_all()

    def _tell_that_we_watch(self) -> float:
        watch(WATCH_FOR, using=self._using)
        return time.monotonic()

    def _wake_after_unaware(self, listener: Listener) -> None:
        """Wake everyone once more when those have ended who could not yet see that we watch, and so tell us nothing."""
        before = find_writers(using=self._using).next
        give_up_at = time.monotonic() + WAIT_FOR_UNAWARE
        pause = SHORTEST_PAUSE
        while find_writers(using=self._using).oldest < before and time.monotonic() < give_up_at:
            for payload in listener.payloads(timeout=pause):
                self._wake(payload)
            pause = min(2 * pause, LONGEST_PAUSE)
        self._wake(None)

    def _gave_up(self) -> bool:
        """Whether nobody waits any more; then the next caller starts a new thread."""
        with self._lock:
            if not self._waiting:
                self._thread = None
            return not self._waiting

    def _wake(self, payload: str | None) -> None:
        """Wake those who wait for the runs in the payload; everyone, when we cannot tell whom it means."""
        runs = _runs_in(payload or "")
        with self._lock:
            concerned = self._waiting.keys() if runs is None else runs & self._waiting.keys()
            woken = [wake for run in concerned for wake in self._waiting[run]]
        for wake in woken:
            with contextlib.suppress(RuntimeError):  # the event loop of the one who waited is closed
                wake()


def _runs_in(payload: str) -> set[Run] | None:
    """The runs that a notification names; None when it names none, or is not one of ours."""
    kind, _, run_ids = payload.partition(" ")
    try:
        return {(KINDS[kind], int(run_id)) for run_id in run_ids.split(",")}
    except (KeyError, ValueError):
        return None


_watches: dict[str, Watch] = {}


@contextmanager
def watch_run(kind: RunKind, run_id: int, wake: Wake, *, using: str) -> Iterator[None]:
    """Call `wake`, from another thread, whenever the run may have ended."""
    if not get_settings().notify:
        yield
        return
    watch = _watches.setdefault(using, Watch(using))
    watch.add((kind, run_id), wake)
    try:
        yield
    finally:
        watch.remove((kind, run_id), wake)
