"""Stops sync handlers that outlive their timeout, and gives up those that cannot be stopped (T8)."""

from __future__ import annotations

import ctypes
import enum
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from catbird_django.engine.steps import Claim
from catbird_django.errors import HandlerTimeout
from catbird_django.worker.handler_connections import cancel_queries, opened_here


class Abandoned(BaseException):
    """This thread's claim was settled without it: whatever it brings comes too late."""


class _State(enum.Enum):
    RUNNING = enum.auto()
    INTERRUPTED = enum.auto()
    ENDED = enum.auto()
    ABANDONED = enum.auto()


class Attempt:
    """One call of a handler on the thread that makes this, seen from the watchdog's thread too."""

    def __init__(self, claim: Claim, timeout: timedelta) -> None:
        self.claim = claim
        self.thread = threading.current_thread()
        self.due = time.monotonic() + timeout.total_seconds()
        self.was_interrupted = False
        self._opened = opened_here()
        self._lock = threading.Lock()
        self._state = _State.RUNNING

    def end(self) -> None:
        """No interrupt may come any more. On the handler's own thread; raise Abandoned if it has been given up.

        The one interrupt may strike in here. So whoever calls this calls it again when it raises.
        """
        with self._lock:
            if self._state is not _State.ABANDONED:
                self._state = _State.ENDED
        _raise_in(self.thread, None)
        if self._state is _State.ABANDONED:
            raise Abandoned

    def interrupt(self) -> None:
        """Raise HandlerTimeout in the handler, unless it has ended, and wake it from what it asks of the database."""
        with self._lock:
            if self._state is not _State.RUNNING:
                return
            self._state = _State.INTERRUPTED
            self.was_interrupted = True
            _raise_in(self.thread, HandlerTimeout)
        # On a thread of its own: a server that does not answer must not keep the watchdog from others.
        threading.Thread(target=self._cancel_queries, name="catbird-cancel-query", daemon=True).start()

    def _cancel_queries(self) -> None:
        with self._lock:  # so that the thread cannot close the connection meanwhile and go on with another run
            if self._state is _State.INTERRUPTED:
                cancel_queries(self._opened)

    def abandon(self) -> bool:
        """Give the thread up, unless it has ended; say whether it was."""
        with self._lock:
            if self._state is not _State.INTERRUPTED:
                return False
            self._state = _State.ABANDONED
            return True


class Watchdog:
    """Looks after attempts that have a timeout, on one thread for all."""

    def __init__(self, *, grace: timedelta, abandoned: Callable[[Attempt], None]) -> None:
        self._grace = grace.total_seconds()
        self._abandoned = abandoned
        self._condition = threading.Condition()
        self._watched: set[Attempt] = set()
        self._wakes_at = float("inf")
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="catbird-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self._thread.join(timeout=5)

    def watch(self, attempt: Attempt) -> None:
        """Interrupt this attempt when its time is over, and abandon it when that does not help."""
        with self._condition:
            self._watched.add(attempt)
            if attempt.due < self._wakes_at:
                self._condition.notify()

    def end(self, attempt: Attempt) -> None:
        """Look after this attempt no more; as `Attempt.end`."""
        try:
            attempt.end()
        finally:
            with self._condition:
                self._watched.discard(attempt)

    def _run(self) -> None:
        while not self._stopping:
            for attempt in self._wait_for_overdue():
                self._act_on(attempt)

    def _wait_for_overdue(self) -> list[Attempt]:
        with self._condition:
            self._wakes_at = min((attempt.due for attempt in self._watched), default=float("inf"))
            if self._stopping:
                return []
            self._condition.wait(max(0.0, min(self._wakes_at - time.monotonic(), threading.TIMEOUT_MAX)))
            now = time.monotonic()
            return [attempt for attempt in self._watched if attempt.due <= now]

    def _act_on(self, attempt: Attempt) -> None:
        if not attempt.was_interrupted:
            attempt.due = time.monotonic() + self._grace
            attempt.interrupt()
            return
        with self._condition:
            self._watched.discard(attempt)
        if attempt.abandon():
            self._abandoned(attempt)


def _raise_in(thread: threading.Thread, error: type[BaseException] | None) -> None:
    """Raise an exception in a thread at its next bytecode; None takes back one that it has not met yet."""
    identity = ctypes.c_ulong(thread.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, None if error is None else ctypes.py_object(error))
