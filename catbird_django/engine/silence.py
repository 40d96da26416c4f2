"""Ends calls to a database that has fallen silent: nothing comes back, and nothing says that nothing will.

A cable that was pulled, a firewall that forgot us, a proxy that hangs: the socket stays, and whoever waits on it waits
for ever; keep-alives do not help when a proxy answers them. So the worker gives each of its own calls so much time and
no more. When most of it is over, the call is canceled, which a server that only waits for a lock obeys: nothing has
happened then. When all of it is over, the socket is shut; the call raises an OperationalError, and the loop it belongs
to reconnects as after any other trouble.

Only threads that ask for it are watched: handlers and web processes have their own ways.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import psycopg
from django.db import connections

LOOK_EVERY = 0.25  # seconds
CANCEL_AFTER = 0.75  # of the time a call has
LONGEST_FACTOR = 16
SHORTEST_CONNECT = 2  # seconds; the driver knows no shorter

Connection = Callable[[], "psycopg.Connection[Any] | None"]

_here = threading.local()
_NOT_WATCHED: AbstractContextManager[None] = nullcontext()


class Call:
    """The calls of one thread, of which one at most is under way. Seen from the watching thread too."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._factor = 1
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._due = 0.0
        self._cancel_at = 0.0

    @contextmanager
    def under_way(self, connection: Connection, within: float | None) -> Iterator[None]:
        # After a call that was cut the next gets twice the time: perhaps the line is only slow.
        allowed = (within or self.patience) * self._factor
        began = time.monotonic()
        with self._lock:
            self._connection, self._due, self._cancel_at = connection, began + allowed, began + CANCEL_AFTER * allowed
        try:
            yield
            self._factor = 1
        finally:
            with self._lock:
                self._connection = None

    def look(self, now: float) -> None:
        """Cancel what takes long; cut what takes too long."""
        with self._lock:
            connection = self._connection and self._connection()
            if connection is None:
                return
            if now >= self._due:
                self._factor = min(2 * self._factor, LONGEST_FACTOR)
                self._connection = None
                shut(connection)
            elif now >= self._cancel_at:
                self._cancel_at = self._due
                threading.Thread(target=_cancel, args=[connection], name="catbird-cancel-call", daemon=True).start()


class Watch:
    """Looks at all watched calls of this process, on one thread that lives while there are any to look at."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self._is_running = False

    def add(self, call: Call) -> None:
        with self._lock:
            self._calls.append(call)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="catbird-silence", daemon=True).start()

    def remove(self, call: Call) -> None:
        with self._lock:
            self._calls.remove(call)

    def _run(self) -> None:
        while True:
            with self._lock:
                calls = list(self._calls)
                if not calls:
                    self._is_running = False
                    return
            now = time.monotonic()
            for call in calls:
                call.look(now)
            time.sleep(LOOK_EVERY)


_watch = Watch()


@contextmanager
def calls_within(seconds: float, *, using: str) -> Iterator[None]:
    """Give each call that this thread makes in the block so many seconds, and each connection it opens."""
    before: Call | None = getattr(_here, "call", None)
    _here.call = call = Call(seconds)
    _watch.add(call)
    try:
        with _connecting_within(seconds, using):
            yield
    finally:
        _watch.remove(call)
        _here.call = before


def under_way(connection: Connection, *, within: float | None = None) -> AbstractContextManager[None]:
    """A block in which this thread waits for that connection; watched if the thread's calls are."""
    call: Call | None = getattr(_here, "call", None)
    return _NOT_WATCHED if call is None else call.under_way(connection, within)


def connect_timeout() -> int | None:
    """How many seconds a connection may take that this thread opens by itself; None where it is not watched."""
    call: Call | None = getattr(_here, "call", None)
    return None if call is None else _whole(call.patience)


@contextmanager
def _connecting_within(seconds: float, using: str) -> Iterator[None]:
    """Let this thread's own wrapper, and no other's, give up connecting in time. The driver alone can do that."""
    wrapper = connections[using]
    before = wrapper.settings_dict
    options = before.get("OPTIONS") or {}
    if not options.get("pool"):  # a pool is everybody's, and has a timeout of its own
        timeout = min(_whole(seconds), int(options.get("connect_timeout") or _whole(seconds)))
        wrapper.settings_dict = {**before, "OPTIONS": {**options, "connect_timeout": timeout}}
    try:
        yield
    finally:
        wrapper.settings_dict = before


def _whole(seconds: float) -> int:
    return max(SHORTEST_CONNECT, int(seconds))


def shut(connection: psycopg.Connection[Any]) -> None:
    """Shut the socket below the driver, so that whoever waits on it is told; from any thread."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def _cancel(connection: psycopg.Connection[Any]) -> None:
    # The older way to cancel has no timeout, and may hold up the whole process.
    if psycopg.capabilities.has_cancel_safe():
        with suppress(psycopg.Error):
            connection.cancel_safe(timeout=SHORTEST_CONNECT)
