"""The worker's own row: who it is, and what others should know about it."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Sequence
from uuid import uuid4

from django.db import connections

import catbird_django
from catbird_django.engine import workers
from catbird_django.engine.call import DATABASE_TROUBLE

logger = logging.getLogger("catbird.worker")

ROW_IS_LOCKED = 2.0  # seconds, at most: whoever else writes it, a producer or a thread of ours, is about to commit
TRY_AGAIN_AFTER = 0.02


class Presence:
    """Tells the database what has changed, when it has; tries again, the next time, what could not be told."""

    def __init__(self, *, queues: Sequence[str] | None, handlers: Sequence[str], slots: int, using: str) -> None:
        self._using = using
        self._told_abandoned = 0
        self._told_draining = False
        self._row = workers.WorkerRow(
            boot_id=uuid4(),
            host=socket.gethostname(),
            pid=os.getpid(),
            version=catbird_django.__version__,
            queues=queues,
            handlers=handlers,
            slots=slots,
        )
        self.worker_id = workers.register_worker(self._row, using=using)

    def tell(self, *, abandoned_count: int, is_draining: bool) -> None:
        """Let the worker's page show how many handlers were abandoned, and that it drains."""
        if abandoned_count == self._told_abandoned and is_draining == self._told_draining:
            return
        try:
            if workers.count_abandoned(self.worker_id, abandoned_count, using=self._using):
                self._told_abandoned = abandoned_count
            if is_draining:
                self._told_draining = workers.drain_worker(self.worker_id, using=self._using)
        except DATABASE_TROUBLE as error:
            logger.warning("cannot tell how this worker is doing", extra={"error": str(error)})
        finally:
            connections.close_all()

    def come_back(self) -> None:
        """Enter this worker again if its row was removed while it was not heard of. Raises what the database raises."""
        workers.register_worker(self._row, again_as=self.worker_id, using=self._using)
        self._told_abandoned, self._told_draining = 0, False

    def end(self) -> None:
        """Mark this worker as stopped, unless somebody keeps its row locked. Raises what the database raises."""
        deadline = time.monotonic() + ROW_IS_LOCKED
        while not workers.stop_worker(self.worker_id, using=self._using):
            if time.monotonic() > deadline:
                logger.warning("cannot mark this worker as stopped: its row is locked")
                return
            time.sleep(TRY_AGAIN_AFTER)
