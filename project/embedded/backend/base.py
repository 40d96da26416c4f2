"""Django's PostgreSQL engine, on a server that is started by the first real connection.

Commands that only read settings, such as `manage.py check`, start nothing. The entry in DATABASES says where:

    "EMBEDDED": {"home": BASE_DIR / ".catbird", "settings": {"fsync": "off"}}
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from django.db.backends.postgresql import base
from django.db.utils import OperationalError

from project.embedded.errors import EmbeddedPostgresError
from project.embedded.launcher import EmbeddedServer

_servers: dict[Path, EmbeddedServer] = {}
_servers_lock = threading.Lock()


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection to the embedded server."""

    def get_connection_params(self) -> dict[str, Any]:
        """Start the server if need be, and say where it is; raise OperationalError when it cannot run."""
        try:
            address = server_for(self.settings_dict["EMBEDDED"]).ensure_running()
        except EmbeddedPostgresError as error:
            raise OperationalError(str(error)) from error
        self.settings_dict |= {"HOST": address.host, "PORT": address.port, "USER": address.user}
        return super().get_connection_params()


def server_for(options: dict[str, Any]) -> EmbeddedServer:
    """Give this process's one EmbeddedServer of that home."""
    home = Path(options["home"])
    with _servers_lock:
        if home not in _servers:
            _servers[home] = EmbeddedServer(home, settings=options.get("settings"))
        return _servers[home]
