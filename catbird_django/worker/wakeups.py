"""LISTEN for new work, on a thread and a connection of its own; and test whether anything arrives."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import psycopg
from django.db import connections

from catbird_django.engine import workers
from catbird_django.engine.call import DATABASE_TROUBLE
from catbird_django.engine.notifications import WORK, Listener
from catbird_django.failpoints import reach
from catbird_django.worker.backoff import Backoff
from catbird_django.worker.patience import Calling

logger = logging.getLogger("catbird.worker")

TICK = "tick"  # the payload for whoever does the upkeep
CANCEL = "cancel"  # the payload for whoever holds a run that was canceled
LOOK_EVERY = 0.2  # seconds between looks at whether to stop

PING_EVERY = 20.0  # seconds: so that a dead connection is noticed, and replaced, within 30
PING_TAKES = 3.0  # at most; what has not arrived by then does not
LONGEST_DEAF_PAUSE = 300.0  # behind a pooler that shares connections trying again does not help, and costs


class Deaf(Exception):
    """Notifications that were sent do not arrive."""


class SelfTest:
    """Knows when to send ourselves a notification, and what it means when it does not come back.

    It is sent like those of everybody else, on the ordinary connection; a connection counts as listening only once one
    was heard on it, because a pooler or a dead line takes LISTEN without complaint.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_at = clock()
        self._missed_at: float | None = None
        self.has_passed = False

    def is_due(self) -> bool:
        return self._missed_at is None and self._clock() >= self._next_at

    def sent(self) -> None:
        now = self._clock()
        self._next_at, self._missed_at = now + PING_EVERY, now + PING_TAKES

    def heard(self) -> None:
        self._missed_at = None
        self.has_passed = True

    def has_failed(self) -> bool:
        return self._missed_at is not None and self._clock() >= self._missed_at


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
        calling: Calling,
    ) -> None:
        self._is_canceled = is_canceled
        self._has_work = has_work
        self._is_due = is_due
        self._worker_id = worker_id
        self._ping = f"ping {worker_id}"
        self._using = using
        self._dsn = dsn
        self._calling = calling
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="catbird-listener", daemon=True)
        self._is_listening = False
        self._told: bool | None = False  # what the worker's row says: as it was entered, nothing is heard yet
        self._has_warned = False

    def is_listening(self) -> bool:
        """Whether notifications are known to arrive."""
        return self._is_listening

    def tell_again(self) -> None:
        """The worker's row was written anew: say once more whether we listen."""
        self._told = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread at its next look, if it was started."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * LOOK_EVERY)

    def _run(self) -> None:
        with self._calling():
            self._loop()

    def _loop(self) -> None:
        trouble, deaf = Backoff(), Backoff(shortest=LOOK_EVERY, longest=LONGEST_DEAF_PAUSE)
        while not self._stopping.is_set():
            test = SelfTest()
            pause = trouble
            try:
                reach("listener-before-relisten")
                with Listener([WORK], using=self._using, dsn=self._dsn) as listener:
                    self._listen(listener, test)
            except Deaf:
                self._warn("notifications do not arrive")
                pause = deaf
            except (psycopg.Error, *DATABASE_TROUBLE) as error:
                self._warn(str(error))
            finally:
                self._is_listening = False
                connections.close_all()
            if test.has_passed:
                trouble.reset()
                deaf.reset()
            if self._stopping.is_set():
                return  # the row is about to say that this worker has stopped: there is nothing to add
            self._tell()
            self._stopping.wait(pause.next_pause())

    def _listen(self, listener: Listener, test: SelfTest) -> None:
        while not self._stopping.is_set():
            if test.is_due():
                workers.ping_worker(self._worker_id, using=self._using)
                test.sent()
            for payload in listener.payloads(timeout=LOOK_EVERY):
                if payload == self._ping:
                    test.heard()
                else:
                    self._pass_on(payload)
            if test.has_failed():
                raise Deaf
            if test.has_passed and not self._is_listening:
                self._begin_to_listen()
            self._tell()

    def _begin_to_listen(self) -> None:
        if self._has_warned:
            logger.info("notifications arrive again", extra={"worker_id": self._worker_id})
        self._has_warned = False
        self._is_listening = True
        self._has_work()  # what was queued before we listened

    def _pass_on(self, payload: str) -> None:
        if payload == TICK:
            self._is_due()
        elif payload == CANCEL:
            self._is_canceled()
        elif not payload or str(self._worker_id) in payload.split(","):
            self._has_work()

    def _warn(self, why: str) -> None:
        """Say once that we only poll; again only after we have listened."""
        if not self._has_warned:
            logger.warning(
                "polling only: work is found later. Behind a pooler that shares connections between transactions "
                'set CATBIRD["LISTEN_DSN"] to a direct connection, or CATBIRD["NOTIFY"] to False',
                extra={"worker_id": self._worker_id, "error": why},
            )
        self._has_warned = True

    def _tell(self) -> None:
        """Let the worker's page show whether notifications reach it, when that has changed."""
        if self._told is self._is_listening:
            return
        try:
            if workers.set_listening(self._worker_id, self._is_listening, using=self._using):
                self._told = self._is_listening
        except DATABASE_TROUBLE as error:
            logger.warning("cannot tell whether notifications arrive", extra={"error": str(error)})
            connections.close_all()
