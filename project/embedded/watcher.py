"""Starts the server, waits until nobody uses it, stops it: `python -m project.embedded.watcher HOME …`.

The launcher starts one when a cluster has none. It is a process of its own, so that it outlives any user, however that
user ends, and the only one that starts and stops the server.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from project.embedded import server
from project.embedded.binaries import Binaries, copy_binaries, version_of
from project.embedded.errors import EmbeddedPostgresError
from project.embedded.layout import Layout, can_enter, layout_of, make_directories
from project.embedded.locks import lock

if TYPE_CHECKING:
    import subprocess

READY = "ready"


def main(arguments: list[str] | None = None) -> None:
    """Leave our parent at once; report `ready`, or what went wrong, on standard output; then watch."""
    options = parse(arguments)
    if os.fork() != 0:
        os._exit(0)
    try:
        watch(options)
    except (EmbeddedPostgresError, OSError) as error:
        print(error)  # noqa: T201 - the launcher reads it
        sys.exit(1)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m project.embedded.watcher", description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--binaries", type=Path, required=True, help="the directory with initdb and postgres")
    parser.add_argument("--start-lock", type=int, required=True, help="descriptor of the start lock, held by us")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server")
    return parser.parse_args(arguments)


def watch(options: argparse.Namespace) -> None:
    binaries = binaries_in(options.binaries)
    layout = layout_of(options.home, major=binaries.major)
    watching = lock(layout.watcher_lock)
    process = bring_up(layout, binaries, dict(setting.split("=", 1) for setting in options.set))
    stopping = threading.Event()
    leave_when_the_server_dies(process, unless=stopping)

    report_ready()
    os.close(options.start_lock)
    starting = wait_until_unused(layout)
    stopping.set()
    try:
        server.stop_process(process)
        remove_socket_directory(layout)
    finally:
        # In this order: whoever starts next must not take us for a watcher of theirs.
        os.close(watching)
        os.close(starting)


def binaries_in(directory: Path) -> Binaries:
    version = version_of(directory)
    if version is None:
        raise EmbeddedPostgresError(f"{directory} holds no PostgreSQL that runs here")
    return Binaries(directory, version)


def bring_up(layout: Layout, binaries: Binaries, settings: dict[str, str]) -> subprocess.Popen[bytes]:
    """Go from whatever is there to a running server."""
    if layout.is_elsewhere and not layout.elsewhere_note.exists():
        # The home was removed to start afresh; what it had elsewhere goes too.
        server.stop_unwatched(layout)
        shutil.rmtree(layout.cluster, ignore_errors=True)
    make_directories(layout)
    if layout.account and not can_enter(binaries.directory, layout.account):
        binaries = copy_binaries(binaries, layout.cluster.parent)
    server.create_cluster(layout, binaries)
    if layout.is_elsewhere:
        layout.elsewhere_note.write_text(f"{layout.cluster}\n")
    return server.start_server(layout, binaries, settings)


def leave_when_the_server_dies(process: subprocess.Popen[bytes], *, unless: threading.Event) -> None:
    """End this process with the server: the next user then finds no watcher, and starts both anew."""

    def wait_and_leave() -> None:
        process.wait()
        if not unless.is_set():
            os._exit(0)

    threading.Thread(target=wait_and_leave, daemon=True).start()


def report_ready() -> None:
    """Tell the launcher, and let go of the pipe: it reads until the end of it."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    print(READY, flush=True)  # noqa: T201 - the launcher reads it
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def remove_socket_directory(layout: Layout) -> None:
    """Leave nothing in the short place that a long path made us use."""
    if layout.socket_directory != layout.cluster:
        with contextlib.suppress(OSError):
            layout.socket_directory.rmdir()


def wait_until_unused(layout: Layout) -> int:
    """Wait until nobody holds the users lock, and give the start lock, under which nobody can join."""
    while True:
        os.close(lock(layout.users_lock))
        starting = lock(layout.start_lock)
        try:
            lock(layout.users_lock, wait=False)
        except BlockingIOError:
            os.close(starting)
            continue
        return starting


if __name__ == "__main__":
    main()
