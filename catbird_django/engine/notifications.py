"""LISTEN, on a connection of its own: outside Django's pool and never in a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import psycopg
from django.db import connections
from psycopg import sql

from catbird_django.engine.silence import connect_timeout, under_way

WORK = "cb_work"
LIVE = "cb_live"

# Django's own connection parameters that psycopg.connect() does not take, or that a listener must not share.
_NOT_FOR_LISTENING = {"pool", "cursor_factory", "context", "prepare_threshold", "autocommit"}


class Listener:
    """A connection that listens to some channels. Notifications are hints: losing one must only cost time."""

    def __init__(self, channels: Sequence[str], *, using: str, dsn: str | None) -> None:
        self._connection = _connect(using, dsn)
        try:
            with under_way(lambda: self._connection):
                for channel in channels:
                    self._connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        except psycopg.Error:
            self._connection.close()
            raise

    def payloads(self, *, timeout: float) -> Iterable[str]:
        """Wait for notifications, at most this many seconds, and return the payloads that came together."""
        return [notice.payload for notice in self._connection.notifies(timeout=timeout, stop_after=1)]

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _connect(using: str, dsn: str | None) -> psycopg.Connection[Any]:
    ours: dict[str, Any] = {"autocommit": True, "application_name": "catbird-listener"}
    if (timeout := connect_timeout()) is not None:
        ours["connect_timeout"] = timeout
    if dsn is not None:
        return psycopg.connect(dsn, **ours)
    parameters = connections[using].get_connection_params()
    kept = {key: value for key, value in parameters.items() if key not in _NOT_FOR_LISTENING}
    return psycopg.connect(**{**kept, **ours})
