"""LISTEN for new work, on a thread and a connection of its own; and the event that wakes the claim loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import psycopg
from django.db import connections

from catbird_django.engine.call import DATABASE_TROUBLE
from catbird_django.engine.notifications import WORK, Listener

logger = logging.getLogger("catbird.worker")

TICK = "tick"  # the payload for whoever does the upkeep
LOOK_EVERY = 0.5  # seconds between looks at whether to stop
LONGEST_PAUSE = 5.0  # seconds between attempts to reconnect


class Wakeups:
    """Wakes the claim loop when this worker is notified."""

    def __init__(self, worker_id: int, *, using: str, dsn: str | None, wake_tick: Callable[[], None]) -> None:
        self._wake_tick = wake_tick
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
        """End the thread at its next look, if it was started."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * LOOK_EVERY)

    def _run(self) -> None:
        delay = 0.1
        while not self._stopping.is_set():
            try:
                with Listener([WORK], using=self._using, dsn=self._dsn) as listener:
                    delay = 0.1
                    self._listen(listener)
            except (psycopg.Error, *DATABASE_TROUBLE) as error:
                logger.warning("cannot listen, polling instead", extra={"error": str(error), "retry_in": delay})
            finally:
                self.is_listening = False
                connections.close_all()
            self._stopping.wait(delay)
            delay = min(delay * 2, LONGEST_PAUSE)

    def _listen(self, listener: Listener) -> None:
        self.is_listening = True
        self.event.set()  # what was queued before we listened
        while not self._stopping.is_set():
            for payload in listener.payloads(timeout=LOOK_EVERY):
                if payload == TICK:
                    self._wake_tick()
                elif not payload or self._worker_id in payload.split(","):
                    self.event.set()
