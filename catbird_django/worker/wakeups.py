"""LISTEN for new work, on a thread and a connection of its own; and the event that wakes the claim loop."""

from __future__ import annotations

import logging
import threading

import psycopg
from django.db import connections
from django.db.utils import Error as DjangoDatabaseError

from catbird_django.engine.notifications import WORK, Listener

logger = logging.getLogger("catbird.worker")

LONGEST_WAIT = 5.0  # seconds between looks at whether to stop, and between attempts to reconnect


class Wakeups:
    """Wakes the claim loop when this worker is notified."""

    def __init__(self, worker_id: int, *, using: str, dsn: str | None) -> None:
        self._worker_id = str(worker_id)
        self._using = using
        self._dsn = dsn
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="catbird-listener", daemon=True)
        self.event = threading.Event()
        self.is_listening = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let the thread end at its next look. Does not wait for it."""
        self._stopping.set()

    def _run(self) -> None:
        delay = 0.1
        while not self._stopping.is_set():
            try:
                with Listener([WORK], using=self._using, dsn=self._dsn) as listener:
                    delay = 0.1
                    self._listen(listener)
            except (psycopg.Error, DjangoDatabaseError) as error:
                logger.warning("cannot listen, polling instead", extra={"error": str(error), "retry_in": delay})
            finally:
                self.is_listening = False
                connections.close_all()
            self._stopping.wait(delay)
            delay = min(delay * 2, LONGEST_WAIT)

    def _listen(self, listener: Listener) -> None:
        self.is_listening = True
        self.event.set()  # what was queued before we listened
        while not self._stopping.is_set():
            for payload in listener.payloads(timeout=LONGEST_WAIT):
                if not payload or self._worker_id in payload.split(","):
                    self.event.set()
