"""LISTEN for new work, on a thread and a connection of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import psycopg
from django.db import connections

from catbird_django.engine.call import DATABASE_TROUBLE
from catbird_django.engine.notifications import WORK, Listener
from catbird_django.failpoints import reach
from catbird_django.worker.backoff import Backoff

logger = logging.getLogger("catbird.worker")

TICK = "tick"  # the payload for whoever does the upkeep
CANCEL = "cancel"  # the payload for whoever holds a run that was canceled
LOOK_EVERY = 0.2  # seconds between looks at whether to stop


class Wakeups:
    """Passes on what this worker is notified of."""

    def __init__(
        self,
        worker_id: int,
        *,
        using: str,
        dsn: str | None,
        has_work: Callable[[], None],
        is_due: Callable[[], None],
        is_canceled: Callable[[], None],
    ) -> None:
        self._is_canceled = is_canceled
        self._has_work = has_work
        self._is_due = is_due
        self._worker_id = str(worker_id)
        self._using = using
        self._dsn = dsn
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="catbird-listener", daemon=True)
        self._is_listening = False

    def is_listening(self) -> bool:
        return self._is_listening

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread at its next look, if it was started."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * LOOK_EVERY)

    def _run(self) -> None:
        backoff = Backoff()
        while not self._stopping.is_set():
            try:
                reach("listener-before-relisten")
                with Listener([WORK], using=self._using, dsn=self._dsn) as listener:
                    backoff.reset()
                    self._listen(listener)
            except (psycopg.Error, *DATABASE_TROUBLE) as error:
                logger.warning("cannot listen, polling instead", extra={"error": str(error)})
            finally:
                self._is_listening = False
                connections.close_all()
            self._stopping.wait(backoff.next_pause())

    def _listen(self, listener: Listener) -> None:
        self._is_listening = True
        self._has_work()  # what was queued before we listened
        while not self._stopping.is_set():
            for payload in listener.payloads(timeout=LOOK_EVERY):
                if payload == TICK:
                    self._is_due()
                elif payload == CANCEL:
                    self._is_canceled()
                elif not payload or self._worker_id in payload.split(","):
                    self._has_work()
