"""The private PostgreSQL of a campaign: durable against its own crashes, and restarted at will."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
from psycopg import sql

from project.embedded.binaries import find_binaries
from project.embedded.layout import layout_of
from project.embedded.server import PORT, SUPERUSER, stop_process
from project.embedded.watcher import bring_up
from tests.chaos import ledger

CHECKOUT = Path(__file__).resolve().parents[2]
TEMPLATE = "catbird_template"
LEDGER = "effects"
WORKER_ROLE = "app"  # no superuser: limits apply to it

SETTINGS = {
    # A crash of the server alone loses nothing that the kernel has, so there is no need to wait for the disk.
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "max_connections": "120",
    "superuser_reserved_connections": "15",
    "shared_buffers": "64MB",
    "deadlock_timeout": "200ms",
    "log_line_prefix": "%m [%p] %d ",
}


class Cluster:
    """One server with a template database, from which every round gets a copy, and the ledger."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.binaries = find_binaries()
        self._layout = layout_of(home, major=self.binaries.major)
        self.start()

    def start(self) -> None:
        self._process = bring_up(self._layout, self.binaries, SETTINGS)

    def ensure_running(self) -> None:
        """Start it anew, if a scenario has gone wrong while it was down."""
        if self._process.poll() is not None:
            self.start()

    def stop(self) -> None:
        stop_process(self._process)

    def crash(self) -> None:
        """Stop as `pg_ctl stop -m immediate` does: no goodbyes, recovery at the next start."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def restart(self, *, down_for: float = 0.0) -> None:
        self.crash()
        time.sleep(down_for)
        self.start()

    @property
    def account(self) -> tuple[int, int] | None:
        """The user and group that the server runs as, when that is not us."""
        account = self._layout.account
        return None if account is None else (account.user, account.group)

    @property
    def socket_directory(self) -> str:
        return str(self._layout.socket_directory)

    @property
    def socket(self) -> str:
        return str(self._layout.socket)

    def said(self, database: str = "") -> str:
        """The server's log so far; only what it says about one database, if that is named."""
        lines = self._layout.log.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if f"] {database}" in line)

    def url(self, database: str, *, user: str = WORKER_ROLE, host: str | None = None, port: int | str = PORT) -> str:
        return f"postgresql://{user}@/{database}?{urlencode({'host': host or self.socket_directory, 'port': port})}"

    @contextmanager
    def admin(self, database: str = "postgres") -> Iterator[psycopg.Connection[Any]]:
        """A superuser's session, which also gets in, and may write, when others may not."""
        options = "-c default_transaction_read_only=off"
        with psycopg.connect(self.url(database, user=SUPERUSER), autocommit=True, options=options) as connection:
            yield connection

    def execute(self, statement: str, *, database: str = "postgres") -> None:
        with self.admin(database) as connection:
            connection.execute(statement)

    def query(self, statement: str, parameters: Any = None, *, database: str) -> list[tuple[Any, ...]]:
        with self.admin(database) as connection:
            return connection.execute(statement, parameters).fetchall()

    def prepare(self) -> None:
        """Make the roles, the ledger, and the template with today's schema and the tasks."""
        self.execute(f"CREATE ROLE {WORKER_ROLE} LOGIN")
        self.execute(f"CREATE ROLE nobody_in_particular; GRANT nobody_in_particular TO {WORKER_ROLE}")
        self.execute(f"CREATE DATABASE {LEDGER}")
        self.execute(f"CREATE DATABASE {TEMPLATE} OWNER {WORKER_ROLE}")
        command = [sys.executable, "-m", "tests.chaos.prepare"]
        subprocess.run(command, cwd=CHECKOUT, env=self.environment(TEMPLATE), check=True)

    def environment(self, database: str, *, url: str | None = None) -> dict[str, str]:
        """What a process needs to know to work on that database."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "CATBIRD"))}
        return {
            **kept,
            "PYTHONPATH": str(CHECKOUT),
            "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
            "DATABASE_URL": url or self.url(database),
            ledger.VARIABLE: self.url(LEDGER, user=SUPERUSER),
            ledger.SCHEMA: database,
        }

    def create(self, database: str, *, tablespace: str = "pg_default") -> None:
        names = (sql.Identifier(name) for name in (database, TEMPLATE, WORKER_ROLE, tablespace))
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER {} TABLESPACE {}").format(*names)
        with self.admin() as connection:
            connection.execute(statement)

    def drop(self, database: str) -> None:
        with self.admin() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))


@contextmanager
def private_cluster() -> Iterator[Cluster]:
    """A cluster in a place of its own, gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="catbird-chaos-", dir=_quick_place()))
    home.chmod(0o755)  # the server's account must get in
    try:
        cluster = Cluster(home)
        try:
            cluster.prepare()
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _quick_place() -> str | None:
    """Memory where there is plenty of it, for the round should wait for faults and not for the disk."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > 2**30 else None
