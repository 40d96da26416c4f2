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

    def create(self, database: str, *, template: str = "template1") -> None:
        """Make a database anew."""
        self.drop(database)
        # Copied as files: through the WAL, gigabytes would leave checkpoints behind for whoever is measured next.
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
        with self.connect() as connection:
            connection.execute(statement.format(sql.Identifier(database), sql.Identifier(template)))

    def drop(self, database: str) -> None:
        with self.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))

    def note(self, database: str, text: str) -> None:
        """Write a note on a database."""
        statement = sql.SQL("COMMENT ON DATABASE {} IS {}")
        with self.connect() as connection:
            connection.execute(statement.format(sql.Identifier(database), sql.Literal(text)))

    def note_on(self, database: str) -> str | None:
        """The note on a database; None where there is none, or no such database."""
        statement = "SELECT max(shobj_description(oid, 'pg_database')) FROM pg_database WHERE datname = %s"
        note = self._value(statement, database)
        return None if note is None else str(note)

    def dead_share(self, database: str, table: str) -> float:
        """Dead rows of a table per live one, as the server's statistics have it."""
        statement = "SELECT n_dead_tup, n_live_tup FROM pg_stat_user_tables WHERE relname = %s"
        with self.connect(database) as connection:
            row = connection.execute(statement, (table,)).fetchone()
        assert row is not None
        return float(row[0] / max(1, row[1]))

    @contextlib.contextmanager
    def old_transaction(self, database: str) -> Iterator[None]:
        """A transaction with a snapshot and an id of its own, open for as long as the block runs."""
        with psycopg.connect(self.dsn(database)) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("SELECT pg_current_xact_id()")
            yield
            connection.rollback()

    def log_statements_of(self, database: str) -> None:
        with self.connect() as connection:
            statement = sql.SQL("ALTER DATABASE {} SET log_statement = 'all'")
            connection.execute(statement.format(sql.Identifier(database)))

    def log_durations_of(self, database: str) -> None:
        """Log every statement in a database with its duration, but not its parameters."""
        with self.connect() as connection:
            for setting in ("log_min_duration_statement", "log_parameter_max_length"):
                statement = sql.SQL("ALTER DATABASE {} SET {} = 0")
                connection.execute(statement.format(sql.Identifier(database), sql.Identifier(setting)))

    def wal_position(self) -> int:
        """How many bytes the server has written to its log so far."""
        return int(str(self._value("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")))

    def deadlocks_in(self, database: str) -> int:
        """How many deadlocks there were in a database, as its statistics have it; sessions that ended have reported."""
        return int(str(self._value("SELECT deadlocks FROM pg_stat_database WHERE datname = %s", database)))

    def checkpoint(self) -> None:
        """Write out what is dirty, so that one contender does not pay for the one before."""
        with self.connect() as connection:
            connection.execute("CHECKPOINT")

    def _value(self, statement: str, *parameters: object) -> object:
        with self.connect() as connection:
            row = connection.execute(statement, parameters or None).fetchone()
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
