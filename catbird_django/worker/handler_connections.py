"""The database connections that handlers open on their threads: found, reset, given up."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from typing import Any

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.dispatch import receiver
from psycopg.pq import TransactionStatus

CANCEL_TIMEOUT = 2.0  # seconds for a cancel request to reach the server

OpenConnections = dict[str, BaseDatabaseWrapper]  # by alias

# What stays with the session when the transaction is over: settings, roles, subscriptions, session locks.
CHANGES_THE_SESSION = re.compile(
    r"\A\s*(SET(?!\s+(LOCAL|TRANSACTION|CONSTRAINTS)\b)|RESET|DISCARD|LISTEN)\b"
    r"|\bset_config\s*\((?![^()]*,\s*true\s*\))"  # with true it is over with the transaction
    r"|\bpg_(try_)?advisory_lock",
    re.IGNORECASE,
)


class _Here(threading.local):
    """What was ever connected on this thread."""

    def __init__(self) -> None:
        self.opened: OpenConnections = {}
        self.changed: set[str] = set()
        """Aliases whose session is no longer as it was when it was opened."""
        self.is_distrusted = False


_here = _Here()


@receiver(connection_created, dispatch_uid="catbird.worker.handler_connections")
def _note_connection(*, connection: BaseDatabaseWrapper, **_: object) -> None:
    _here.opened[connection.alias] = connection
    _here.changed.discard(connection.alias)  # what other receivers have set up belongs to it
    if _note_change not in connection.execute_wrappers:
        connection.execute_wrappers.append(_note_change)


def _note_change(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """Take note of statements whose effect outlives the handler."""
    text = sql if isinstance(sql, str) else sql.as_string(None)
    if CHANGES_THE_SESSION.search(text):
        _here.changed.add(context["connection"].alias)
    return execute(sql, params, many, context)


def opened_here() -> OpenConnections:
    """The connections of this thread, those to come included, for another thread to look at."""
    return _here.opened


def reset_connections() -> None:
    """Leave no trace of a handler on this thread's connections: no transaction, no setting, no dead socket (W7)."""
    if not _here.opened:
        return  # asking Django for this thread's connections takes longer than a small handler
    for connection in connections.all(initialized_only=True):
        if _here.is_distrusted or has_open_transaction(connection) or connection.alias in _here.changed:
            give_up(connection)
        else:
            connection.close_if_unusable_or_obsolete()
    _here.is_distrusted = False


def has_open_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction is under way on it, or the next statement would begin one."""
    if connection.in_atomic_block:
        return True
    driver = connection.connection
    if driver is None:
        return False
    is_idle = not isinstance(driver, psycopg.Connection) or driver.info.transaction_status == TransactionStatus.IDLE
    return not (is_idle and connection.get_autocommit())


def distrust_connections() -> None:
    """Let the next reset forget this thread's connections: an interrupted handler may have left them in anything.

    Not at once: a transaction around the handler must still be able to end on them.
    """
    _here.is_distrusted = True


def has_failed_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Whether the transaction on it has met an error, so that the server refuses everything but to roll it back."""
    driver = connection.connection
    return isinstance(driver, psycopg.Connection) and driver.info.transaction_status == TransactionStatus.INERROR


def give_up(connection: BaseDatabaseWrapper) -> None:
    """Close this thread's connection and forget it, whatever state it is in."""
    connection.close()
    _here.changed.discard(connection.alias)
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
