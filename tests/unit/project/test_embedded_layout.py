"""Where an embedded cluster keeps its things, and what is done about pid files of the dead."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from project.embedded.errors import EmbeddedPostgresError
from project.embedded.layout import Account, Layout, can_enter, make_private_directory, socket_directory_of
from project.embedded.server import is_ready, reason_in, serves, stop_unwatched

SOMEBODY_ELSE = Account(user=os.geteuid() + 1, group=os.getegid() + 1)


@pytest.fixture
def layout(tmp_path):
    cluster = tmp_path / "cluster-18"
    (cluster / "data").mkdir(parents=True)
    return Layout(home=tmp_path, cluster=cluster, socket_directory=cluster, account=None)


def test_the_socket_is_in_the_cluster_unless_its_path_is_too_long_or_has_a_comma():
    fitting = Path("/srv/project/.catbird/cluster-18")
    long = Path("/srv") / ("x" * 90) / "cluster-18"
    comma = Path("/srv/a,b/cluster-18")

    assert socket_directory_of(fitting) == fitting
    assert socket_directory_of(long).parent == socket_directory_of(comma).parent == Path("/tmp")
    assert socket_directory_of(long) != socket_directory_of(comma)


def test_an_account_can_enter_where_every_directory_on_the_way_lets_it(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "closed").mkdir(mode=0o700)
    us = Account(user=os.geteuid(), group=os.getegid())

    assert can_enter(tmp_path / "closed", us)
    assert not can_enter(tmp_path / "closed", SOMEBODY_ELSE)
    assert can_enter(Path("/usr/bin"), SOMEBODY_ELSE)


def test_a_directory_is_made_for_its_owner_alone(tmp_path):
    make_private_directory(tmp_path / "new", owner=os.geteuid(), mode=0o700)

    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", ["file", "link", "open to others"])
def test_what_is_not_a_directory_of_ours_alone_is_refused(tmp_path, kind):
    place = tmp_path / "place"
    if kind == "file":
        place.touch()
    elif kind == "link":
        place.symlink_to(tmp_path)
    else:
        place.mkdir()
        place.chmod(0o777)

    with pytest.raises(EmbeddedPostgresError, match="not a directory of ours alone"):
        make_private_directory(place, owner=os.geteuid(), mode=0o700)


def test_a_directory_of_another_owner_is_refused(tmp_path):
    (tmp_path / "place").mkdir()

    with pytest.raises(EmbeddedPostgresError, match="run this as its owner"):
        make_private_directory(tmp_path / "place", owner=os.geteuid() + 1, mode=0o700)


def test_a_server_is_ready_when_its_own_pid_file_says_so(layout):
    pid_file = layout.data / "postmaster.pid"
    lines = ["42", str(layout.data), "1700000000", "5432", "/sockets", "", "shm", "starting"]

    pid_file.write_text("\n".join(lines))
    assert not is_ready(42, layout)

    pid_file.write_text("\n".join([*lines[:7], "ready   "]))
    assert is_ready(42, layout)
    assert not is_ready(43, layout)


def test_a_zombie_serves_nobody_and_its_pid_files_are_removed(layout):
    zombie = subprocess.Popen([sys.executable, "-c", "pass"], cwd=layout.data)
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)  # ended, and left unreaped
    (layout.data / "postmaster.pid").write_text(f"{zombie.pid}\n")
    socket_lock = layout.cluster / ".s.PGSQL.5432.lock"
    socket_lock.write_text(f"{zombie.pid}\n")

    assert not serves(zombie.pid, layout)
    stop_unwatched(layout)

    assert not (layout.data / "postmaster.pid").exists()
    assert not socket_lock.exists()
    zombie.wait()


def test_a_server_without_a_watcher_is_stopped(layout):
    # Stands in for a server: it works in the data directory, and ends on SIGINT.
    server = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], cwd=layout.data,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
    server.stdout.readline()
    (layout.data / "postmaster.pid").write_text(f"{server.pid}\n")

    stop_unwatched(layout)

    assert server.wait(10) != 0
    assert not (layout.data / "postmaster.pid").exists()


def test_the_reason_is_the_last_fatal_line():
    said = "LOG:  starting\n2026-01-01 UTC [7] FATAL:  no room\n2026-01-01 UTC [7] LOG:  database system is shut down\n"

    assert reason_in(said) == "no room"
    assert reason_in("") == "it said nothing"
