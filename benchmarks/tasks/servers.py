"""The PostgreSQL all share, durable as in production, and a Redis for those who need one."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from project.embedded.binaries import find_binaries
from project.embedded.launcher import EmbeddedServer
from project.embedded.layout import layout_of

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",
    "max_connections": "200",
}
ANSWER_WITHIN = 10.0  # seconds


class Postgres:
    """The server; databases come and go on it."""

    def __init__(self, home: Path) -> None:
        self._server = EmbeddedServer(home, settings=SETTINGS)
        self._address = self._server.ensure_running()
        self.log = layout_of(home, major=find_binaries().major).log

    def dsn(self, database: str) -> str:
        address = self._address
        return f"postgresql://{address.user}@/{database}?host={quote(address.host, safe='')}&port={address.port}"

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        return psycopg.connect(self.dsn(database), autocommit=True)

    def version(self) -> str:
        return str(self._value("SHOW server_version"))

    def settings(self) -> dict[str, str]:
        """What the server says of the settings that matter, whoever started it."""
        return {name: str(self._value(f"SHOW {name}")) for name in SETTINGS}

    def exists(self, database: str) -> bool:
        return bool(self._value("SELECT count(*) FROM pg_database WHERE datname = %s", database))

    def create(self, database: str, *, template: str = "template1") -> None:
        """Make a database anew."""
        self.drop(database)
        names = sql.Identifier(database), sql.Identifier(template)
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))

    def drop(self, database: str) -> None:
        with self.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))

    def log_statements_of(self, database: str) -> None:
        with self.connect() as connection:
            statement = sql.SQL("ALTER DATABASE {} SET log_statement = 'all'")
            connection.execute(statement.format(sql.Identifier(database)))

    def checkpoint(self) -> None:
        """Write out what is dirty, so that one contender does not pay for the one before."""
        with self.connect() as connection:
            connection.execute("CHECKPOINT")

    def _value(self, statement: str, *parameters: object) -> object:
        with self.connect() as connection:
            row = connection.execute(statement, parameters or None).fetchone()  # type: ignore[arg-type]
        assert row is not None
        return row[0]


@contextlib.contextmanager
def redis_server(home: Path) -> Iterator[str | None]:
    """A Redis on loopback with its default settings; None where there is no redis-server."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    home.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(home)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_it_answers(port)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait_until_it_answers(port: int) -> None:
    deadline = time.monotonic() + ANSWER_WITHIN
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError("redis-server does not answer")
