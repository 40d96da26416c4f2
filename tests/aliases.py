"""Database aliases that lead to the test database by another way: through a proxy, or a pooler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, connections


@contextmanager
def alias_for(alias: str, *, port: int, **settings: Any) -> Iterator[str]:
    """An alias for the test database as it is reached at a port of this host. Begins without a connection."""
    parameters = connection.get_connection_params()
    connections.databases[alias] = {
        **connection.settings_dict,
        "ENGINE": "tests.unguarded",
        "NAME": parameters["dbname"],
        "USER": parameters.get("user", ""),
        "PASSWORD": parameters.get("password", ""),
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "OPTIONS": {},
        **settings,
    }
    try:
        yield alias
    finally:
        connections[alias].close()
        del connections.databases[alias]
        delattr(connections._connections, alias)
