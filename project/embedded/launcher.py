"""What a user of the embedded server calls: join, start it if need be, learn its address.

Three locks carry the agreement:

    start     held while somebody decides, starts or stops
    users     shared by every process that uses the server, until it ends
    watcher   held by the one watcher of the cluster

The kernel drops a lock with its holder, so no death leaves a count that is wrong.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from project.embedded.binaries import Binaries, find_binaries
from project.embedded.errors import EmbeddedPostgresError
from project.embedded.layout import Layout, layout_of
from project.embedded.locks import is_current, is_locked, lock, locked
from project.embedded.server import PORT, SUPERUSER
from project.embedded.watcher import READY

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to connect; no password is asked, the socket's directory keeps others out."""

    host: str
    port: str = PORT
    user: str = SUPERUSER


class EmbeddedServer:
    """One process's part in the server of a home directory.

    `settings` are PostgreSQL's, by name; the user who happens to start the server decides them.
    """

    def __init__(self, home: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self._home = home
        self._settings = dict(settings or {})
        self._found: tuple[Binaries, Layout] | None = None
        self._membership: int | None = None
        self._turn = threading.Lock()

    def ensure_running(self) -> Address:
        """Join the users of the server, start it unless it runs, and give its address; cheap when nothing is to do.

        Raises EmbeddedPostgresError when it cannot run.
        """
        with self._turn:
            binaries, layout = self._find()
            if not (self._is_member(layout) and is_served(layout)):
                self._join(binaries, layout)
            return Address(host=str(layout.socket_directory))

    def leave(self) -> None:
        """Stop being a user; the last one to leave has the server stopped. The end of the process does the same."""
        with self._turn:
            if self._membership is not None:
                os.close(self._membership)
            self._membership = None

    def _find(self) -> tuple[Binaries, Layout]:
        if self._found is None:
            binaries = find_binaries()
            self._found = binaries, layout_of(self._home, major=binaries.major)
        return self._found

    def _is_member(self, layout: Layout) -> bool:
        return self._membership is not None and is_current(self._membership, layout.users_lock)

    def _join(self, binaries: Binaries, layout: Layout) -> None:
        try:
            layout.locks.mkdir(parents=True, exist_ok=True)
            with locked(layout.start_lock) as starting:
                if not self._is_member(layout):
                    # An old membership is of a directory that was removed since; it still counts for that server.
                    self._membership = lock(layout.users_lock, shared=True)
                if not is_served(layout):
                    start_watcher(binaries, layout, self._settings, starting)
        except OSError as error:
            raise EmbeddedPostgresError(
                f"cannot use {layout.locks} ({error.strerror}): "
                "run this as its owner, in a directory you may write to, or set DATABASE_URL"
            ) from error


def is_served(layout: Layout) -> bool:
    """Say whether a server takes connections and has a watcher to stop it."""
    return layout.watcher_lock.exists() and is_locked(layout.watcher_lock) and accepts_connections(layout)


def accepts_connections(layout: Layout) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        try:
            caller.connect(str(layout.socket))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def start_watcher(binaries: Binaries, layout: Layout, settings: Mapping[str, str], starting: int) -> None:
    """Start a watcher, and wait until it has started the server or said why not.

    The watcher inherits the start lock: if we are killed meanwhile, nobody gets in between.
    """
    command = [sys.executable, "-m", "project.embedded.watcher", str(layout.home)]
    details = ["--binaries", str(binaries.directory), "--start-lock", str(starting)]
    answer = subprocess.run(  # noqa: S603 - our own module
        [*command, *details, *(f"--set={name}={value}" for name, value in settings.items())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        pass_fds=[starting],
        start_new_session=True,
        check=False,
    )
    words = answer.stdout.split("\n")
    if READY not in words:
        reason = answer.stdout.strip().rsplit("\n", 1)[-1] or "its watcher was killed while starting it: run this again"
        raise EmbeddedPostgresError(f"the embedded PostgreSQL did not start: {reason}")
