"""The database connections that handlers open on their threads: found, reset, given up."""

from __future__ import annotations

import contextlib
import threading

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.dispatch import receiver

CANCEL_TIMEOUT = 2.0  # seconds for a cancel request to reach the server

OpenConnections = dict[str, BaseDatabaseWrapper]  # by alias


class _Here(threading.local):
    """What was ever connected on this thread."""

    def __init__(self) -> None:
        self.opened: OpenConnections = {}


_here = _Here()


@receiver(connection_created, dispatch_uid="catbird.worker.handler_connections")
def _note_connection(*, connection: BaseDatabaseWrapper, **_: object) -> None:
    _here.opened[connection.alias] = connection


def opened_here() -> OpenConnections:
    """The connections of this thread, those to come included, for another thread to look at."""
    return _here.opened


def reset_connections() -> None:
    """Leave no trace of a handler on this thread's connections: no open transaction, no dead socket (W7)."""
    if not _here.opened:
        return  # asking Django for this thread's connections takes longer than a small handler
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block or (connection.connection is not None and not connection.get_autocommit()):
            _give_up(connection)
        else:
            connection.close_if_unusable_or_obsolete()


def give_up_connections() -> None:
    """Forget this thread's connections: an interrupted handler may have left them in the middle of anything."""
    for connection in connections.all(initialized_only=True):
        _give_up(connection)


def _give_up(connection: BaseDatabaseWrapper) -> None:
    connection.close()
    # Inside atomic() Django keeps the closed connection, to refuse further queries. Forget the whole wrapper.
    del connections[connection.alias]


def cancel_queries(opened: OpenConnections) -> None:
    """Ask the server to stop what runs on these connections of another thread."""
    for wrapper in list(opened.values()):
        driver = wrapper.connection
        if isinstance(driver, psycopg.Connection) and not driver.closed:
            # It may be closed under our hands, or the server may be gone: the handler's thread finds out by itself.
            with contextlib.suppress(psycopg.Error):
                driver.cancel_safe(timeout=CANCEL_TIMEOUT)
