"""One cluster: creates it, starts its server, stops it, and clears up after a dead one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from project.embedded.errors import EmbeddedPostgresError
from project.process_death import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from project.embedded.binaries import Binaries
    from project.embedded.layout import Layout

SUPERUSER = "catbird"
PORT = "5432"

START_TIMEOUT = 60.0
STOP_TIMEOUT = 20.0
GLANCE = 0.02

# Linux tells about processes here; other systems are asked with `ps`.
PROC = Path("/proc")

# What PostgreSQL says while the children of a killed server are still on their way out.
CHILDREN_STILL_THERE = "pre-existing shared memory block"


def create_cluster(layout: Layout, binaries: Binaries) -> None:
    """Create the data directory unless it is there. Killed halfway, it leaves nothing that looks finished."""
    if layout.data.exists():
        return
    for leftover in layout.cluster.glob("data.unfinished-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    unfinished = layout.cluster / f"data.unfinished-{os.getpid()}"
    # No locale, so that text sorts alike on every machine; no sync, because a crash here only means a second try.
    command = [binaries.program("initdb"), "-D", str(unfinished), "-U", SUPERUSER, "-A", "trust", "-E", "UTF8"]
    done = subprocess.run(  # noqa: S603 - a program of PostgreSQL
        [*command, "--no-locale", "--no-sync", "--no-instructions"],
        capture_output=True,
        text=True,
        errors="replace",
        **child_options(layout, dies_by=signal.SIGKILL),
    )
    if done.returncode != 0:
        raise EmbeddedPostgresError(f"initdb failed: {last_line(done.stderr)}")
    unfinished.rename(layout.data)


def start_server(layout: Layout, binaries: Binaries, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the server and wait until it takes connections; a server that runs unwatched is stopped first."""
    deadline = time.monotonic() + START_TIMEOUT
    stop_unwatched(layout)
    while True:
        beginning = layout.log.stat().st_size if layout.log.exists() else 0
        process = launch(layout, binaries, settings)
        if wait_until_ready(process, layout, deadline):
            return process
        said = words_since(layout.log, beginning)
        if CHILDREN_STILL_THERE in said and time.monotonic() < deadline:
            time.sleep(GLANCE)
            continue
        raise EmbeddedPostgresError(f"{reason_of(process, said)} (see {layout.log})")


def launch(layout: Layout, binaries: Binaries, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
    directories = ["-D", str(layout.data), "-k", str(layout.socket_directory)]
    command = [binaries.program("postgres"), *directories, "-p", PORT]
    for name, value in {"listen_addresses": "", "unix_socket_permissions": "0700", **settings}.items():
        command.append(f"--{name}={value}")
    with layout.log.open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - a program of PostgreSQL
            command,
            stdout=log,
            stderr=log,
            text=False,
            start_new_session=True,
            # SIGINT is PostgreSQL's fast shutdown: should the watcher be killed, the server goes in good order.
            **child_options(layout, dies_by=signal.SIGINT),
        )


def wait_until_ready(process: subprocess.Popen[bytes], layout: Layout, deadline: float) -> bool:
    """Wait until the server says that it is ready; False when it ended instead, or took too long and was stopped."""
    while process.poll() is None:
        if time.monotonic() > deadline:
            stop_process(process)
            return False
        if is_ready(process.pid, layout):
            return True
        time.sleep(GLANCE)
    return False


def is_ready(pid: int, layout: Layout) -> bool:
    """Read in `postmaster.pid` what pg_ctl reads there: the first line has the pid, the eighth the state."""
    lines = pid_file_lines(layout)
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7] == "ready"


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """Stop a server that is our child: politely, then firmly."""
    for how, patience in stop_signals():
        process.send_signal(how)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        return


def stop_signals() -> Iterator[tuple[signal.Signals, float]]:
    yield signal.SIGINT, STOP_TIMEOUT
    yield signal.SIGQUIT, STOP_TIMEOUT
    yield signal.SIGKILL, STOP_TIMEOUT


def stop_unwatched(layout: Layout) -> None:
    """Stop a server that outlived its watcher, and remove the pid files of one that is dead.

    PostgreSQL itself would take a zombie, or another process with the same pid, for a running server.
    """
    pid = pid_in_file(layout)
    if pid is None:
        return
    for how, patience in stop_signals():
        if not serves(pid, layout):
            break
        os.kill(pid, how)
        wait_until_gone(pid, layout, patience)
    (layout.data / "postmaster.pid").unlink(missing_ok=True)
    layout.socket.with_name(f"{layout.socket.name}.lock").unlink(missing_ok=True)


def wait_until_gone(pid: int, layout: Layout, patience: float) -> None:
    deadline = time.monotonic() + patience
    while serves(pid, layout) and time.monotonic() < deadline:
        time.sleep(GLANCE)


def serves(pid: int, layout: Layout) -> bool:
    """Say whether that process is alive and is the server of this cluster."""
    if PROC.exists():
        # A server works in its data directory; a zombie works nowhere.
        try:
            return (PROC / str(pid) / "cwd").resolve() == layout.data.resolve()
        except OSError:
            return False
    command = ["ps", "-p", str(pid), "-o", "stat=,command="]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - only a number varies
    state, _, started_as = answer.stdout.strip().partition(" ")
    return not state.startswith("Z") and str(layout.data) in started_as


def pid_in_file(layout: Layout) -> int | None:
    lines = pid_file_lines(layout)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def pid_file_lines(layout: Layout) -> list[str]:
    try:
        text = (layout.data / "postmaster.pid").read_text(errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines()]


def child_options(layout: Layout, *, dies_by: signal.Signals) -> dict[str, Any]:
    """Options of `subprocess` that PostgreSQL's programs are started with: account, place, surroundings, lifetime."""
    # PGPORT, PGDATA and their like would override what we say.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    options: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "cwd": "/",
        "env": {**environment, "LC_ALL": "C"},
        "preexec_fn": die_with_parent(dies_by),
    }
    if layout.account:
        options |= {"user": layout.account.user, "group": layout.account.group, "extra_groups": []}
    return options


def words_since(log: Path, beginning: int) -> str:
    with log.open("rb") as file:
        file.seek(beginning)
        return file.read().decode(errors="replace")


def reason_of(process: subprocess.Popen[bytes], said: str) -> str:
    if process.returncode < 0:
        return f"it was killed by signal {-process.returncode} while starting: run this again"
    return reason_in(said)


def reason_in(said: str) -> str:
    """Give the line in which PostgreSQL says why it stopped."""
    fatal = [line for line in said.splitlines() if "FATAL:" in line or "PANIC:" in line]
    return fatal[-1].partition(": ")[2].strip() if fatal else last_line(said)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
