"""The embedded PostgreSQL with real processes: shared, gone after its last user, right after a kill -9 of anything."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest

from project.embedded import layout as layouts
from project.embedded.binaries import find_binaries
from project.embedded.errors import EmbeddedPostgresError
from project.embedded.launcher import EmbeddedServer
from project.embedded.layout import Layout, layout_of
from project.embedded.server import pid_in_file, serves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE = 20.0

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch to another account")


def eventually(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s in vain: {what}"
        time.sleep(0.02)


@pytest.fixture
def home(place: Path) -> Iterator[Path]:
    yield place / "home"
    eventually(lambda: not is_served(place / "home"), "the server goes with its last user")


class User:
    """A process that uses the server until it is dismissed."""

    def __init__(self, home: Path, *, python: str = sys.executable, **options: object) -> None:
        self.process = subprocess.Popen(
            [python, "-m", "project.embedded", home],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
            **options,  # type: ignore[call-overload]
        )

    def is_served(self) -> bool:
        """Wait for the address; False when the user was refused."""
        return self.process.stdout.readline().startswith("psql -h ")

    def dismiss(self) -> None:
        self.process.communicate(timeout=PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)


def layout(home: Path) -> Layout:
    return layout_of(home, major=find_binaries().major)


def server_of(home: Path) -> psutil.Process:
    return psutil.Process(pid_in_file(layout(home)))


def watcher_of(home: Path) -> psutil.Process:
    return server_of(home).parent()


def is_served(home: Path) -> bool:
    pid = pid_in_file(layout(home))
    return pid is not None and serves(pid, layout(home))


def is_gone(process: psutil.Process) -> bool:
    """Dead, or a zombie that its parent has yet to notice."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def starts(home: Path) -> int:
    return layout(home).log.read_text().count("starting PostgreSQL")


def query(home: Path, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(host=str(layout(home).socket_directory), user="catbird", dbname="postgres") as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


def test_the_first_user_starts_it_and_the_last_one_stops_it(home):
    first, second = User(home), User(home)
    assert first.is_served()
    assert second.is_served()

    first.dismiss()
    assert query(home, "SELECT 1") == [(1,)]
    second.dismiss()

    eventually(lambda: not is_served(home), "the server is stopped")
    assert starts(home) == 1


def test_eight_users_at_once_share_one_server(home):
    users = [User(home) for _ in range(8)]

    assert all(user.is_served() for user in users)

    assert starts(home) == 1
    for user in users:
        user.dismiss()


def test_what_was_written_is_there_the_next_time(home):
    user = User(home)
    assert user.is_served()
    query(home, "CREATE TABLE kept AS SELECT 7 AS number")
    user.dismiss()
    eventually(lambda: not is_served(home), "the server is stopped")

    user = User(home)
    assert user.is_served()

    assert query(home, "SELECT number FROM kept") == [(7,)]
    user.dismiss()


def test_neither_locale_nor_variables_for_other_servers_change_anything(home):
    meant_for_others = {"LC_ALL": "en_US.UTF-8", "PGPORT": "6000", "PGDATA": "/nowhere", "PGHOST": "elsewhere"}
    user = User(home, env={**os.environ, **meant_for_others})
    assert user.is_served()

    facts = query(home, "SELECT datcollate, pg_encoding_to_char(encoding) FROM pg_database WHERE datname = 'postgres'")

    assert facts == [("C", "UTF8")]
    user.dismiss()


def test_nothing_is_left_when_the_only_user_is_killed(home):
    user = User(home)
    assert user.is_served()
    watcher = watcher_of(home)

    user.kill()

    eventually(lambda: not is_served(home), "the server is stopped")
    eventually(lambda: is_gone(watcher), "the watcher leaves")


def test_a_killed_server_is_started_again_with_all_that_was_committed(home):
    server = EmbeddedServer(home)
    server.ensure_running()
    query(home, "CREATE TABLE kept AS SELECT 7 AS number")
    server_of(home).kill()
    eventually(lambda: not is_served(home), "the kernel has done it")

    server.ensure_running()

    assert query(home, "SELECT number FROM kept") == [(7,)]
    server.leave()


def test_after_a_killed_watcher_server_and_watcher_are_started_anew(home):
    server = EmbeddedServer(home)
    server.ensure_running()
    killed = watcher_of(home)
    killed.kill()
    eventually(lambda: not is_served(home), "the server goes with its watcher")

    server.ensure_running()

    assert query(home, "SELECT 1") == [(1,)]
    assert watcher_of(home).pid != killed.pid
    server.leave()


def test_nothing_is_left_when_user_and_watcher_are_killed_together(home):
    user = User(home)
    assert user.is_served()

    watcher_of(home).kill()
    user.kill()

    eventually(lambda: not is_served(home), "the server goes with its watcher")


def test_a_user_killed_while_the_cluster_is_made_leaves_the_next_one_a_good_server(home, place):
    gate = SlowPrograms(place)
    hasty = User(home, env=gate.environment)
    gate.wait_until_reached()
    hasty.kill()
    patient = User(home, env=gate.environment)

    gate.open()

    assert patient.is_served()
    assert query(home, "SELECT 1") == [(1,)]
    patient.dismiss()


class SlowPrograms:
    """PostgreSQL's programs with an `initdb` that waits at a gate."""

    def __init__(self, place: Path) -> None:
        real = shlex.quote(str(find_binaries().directory))
        self._reached, self._opened = place / "reached", place / "opened"
        os.mkfifo(self._reached)
        os.mkfifo(self._opened)
        for fifo in (self._reached, self._opened):
            fifo.chmod(0o666)
        programs = place / "programs"
        programs.mkdir()
        (programs / "postgres").write_text(f'#!/bin/sh\nexec {real}/postgres "$@"\n')
        (programs / "initdb").write_text(
            f'#!/bin/sh\necho here > {self._reached}\nread word < {self._opened}\nexec {real}/initdb "$@"\n'
        )
        for program in programs.iterdir():
            program.chmod(0o755)
        self.environment = {**os.environ, "CATBIRD_PG_BIN": str(programs)}

    def wait_until_reached(self) -> None:
        self._reached.read_text()

    def open(self) -> None:
        self._opened.write_text("go\n")


def test_an_interrupted_creation_is_begun_again(home):
    leftover = layout(home).cluster / "data.unfinished-1"
    layouts.make_directories(layout(home))
    leftover.mkdir(parents=True)
    user = User(home)

    assert user.is_served()

    assert not leftover.exists()
    user.dismiss()


def test_a_pid_file_that_names_a_stranger_is_no_obstacle_and_the_stranger_lives(home):
    user = User(home)
    assert user.is_served()
    user.dismiss()
    eventually(lambda: not is_served(home), "the server is stopped")
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (layout(home).data / "postmaster.pid").write_text(f"{stranger.pid}\n/elsewhere\n")

    user = User(home)
    assert user.is_served()

    assert stranger.poll() is None
    stranger.communicate()
    user.dismiss()


def test_a_home_that_is_removed_under_a_running_server_is_made_anew(home):
    server = EmbeddedServer(home)
    server.ensure_running()
    query(home, "CREATE TABLE gone AS SELECT 7 AS number")
    abandoned = server_of(home)
    shutil.rmtree(home, ignore_errors=True)

    server.ensure_running()

    assert query(home, "SELECT to_regclass('gone')") == [(None,)]
    abandoned.send_signal(signal.SIGQUIT)  # it would notice by itself, within a minute
    server.leave()


@pytest.mark.parametrize("name", ["space, comma", "quote ' and \" and $dollar", "grüße"])
def test_any_path_will_do(place, name):
    user = User(place / name)

    assert user.is_served()
    user.dismiss()

    eventually(lambda: not is_served(place / name), "the server is stopped")


def test_a_path_too_long_for_a_socket_will_do(place):
    home = place / ("long" * 40)
    short = layout(home).socket_directory
    user = User(home)

    assert user.is_served()
    assert short.parent == Path("/tmp")
    assert stat.S_IMODE(short.stat().st_mode) == 0o700
    user.dismiss()

    eventually(lambda: not short.exists(), "nothing is left in the short place")


def test_a_socket_directory_that_somebody_else_made_is_refused(place):
    home = place / ("long" * 40)
    trap = layout(home).socket_directory
    trap.symlink_to(place)
    try:
        with pytest.raises(EmbeddedPostgresError, match="not a directory of ours alone"):
            EmbeddedServer(home).ensure_running()
    finally:
        trap.unlink()


def test_a_home_that_cannot_be_made_is_explained_in_one_line(place):
    (place / "file").write_text("in the way")

    with pytest.raises(EmbeddedPostgresError, match=r"cannot make .*/file/home .*DATABASE_URL") as refusal:
        EmbeddedServer(place / "file" / "home").ensure_running()

    assert "\n" not in str(refusal.value)


def test_a_server_that_does_not_start_says_why_in_one_line(home):
    with pytest.raises(EmbeddedPostgresError, match=r"did not start: .*max_connections") as refusal:
        EmbeddedServer(home, settings={"max_connections": "none"}).ensure_running()

    assert "\n" not in str(refusal.value)


@as_root
def test_an_ordinary_user_is_served_too(place):
    python = python_for_everybody()
    home = place / "of nobody"
    home.mkdir()
    shutil.chown(home, "nobody")
    environment = {"PATH": "/usr/bin:/bin", "CATBIRD_PG_BIN": str(programs_for_everybody(place))}
    user = User(home, python=python, user="nobody", extra_groups=[], env=environment)

    assert user.is_served(), user.process.stderr.read()

    assert server_of(home).username() == "nobody"
    user.dismiss()
    eventually(lambda: not is_served(home), "the server is stopped")


@as_root
def test_root_goes_on_with_the_cluster_of_an_ordinary_user(place):
    home = place / "home"
    cluster = layout(home).cluster
    cluster.mkdir()
    shutil.chown(cluster, "nobody")
    user = User(home)

    assert user.is_served()

    assert server_of(home).username() == "nobody"
    user.dismiss()
    eventually(lambda: not is_served(home), "the server is stopped")


@as_root
def test_root_is_served_from_a_directory_that_nobody_else_can_enter(place):
    (place / "private").mkdir(mode=0o700)
    home = place / "private" / "home"
    user = User(home)

    assert user.is_served()

    elsewhere = layout(home).cluster.parent
    assert elsewhere.parent == Path("/var/lib")
    assert stat.S_IMODE((place / "private").stat().st_mode) == 0o700
    user.dismiss()
    eventually(lambda: not is_served(home), "the server is stopped")
    shutil.rmtree(elsewhere)


@as_root
def test_removing_the_home_starts_afresh_also_when_the_cluster_is_elsewhere(place):
    (place / "private").mkdir(mode=0o700)
    home = place / "private" / "home"
    user = User(home)
    assert user.is_served()
    query(home, "CREATE TABLE gone AS SELECT 7 AS number")
    user.dismiss()
    eventually(lambda: not is_served(home), "the server is stopped")
    shutil.rmtree(home)

    user = User(home)
    assert user.is_served()

    assert query(home, "SELECT to_regclass('gone')") == [(None,)]
    user.dismiss()
    eventually(lambda: not is_served(home), "the server is stopped")
    shutil.rmtree(layout(home).cluster.parent)


def python_for_everybody() -> str:
    """An interpreter that an ordinary user can run: root's own may be in root's home."""
    for name in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        trial = [name, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            if subprocess.run(trial, user="nobody", extra_groups=[], env={}, check=False).returncode == 0:
                return name
        except OSError:
            continue
    pytest.skip("no Python 3.11 that an ordinary user can run")


def programs_for_everybody(place: Path) -> Path:
    found = find_binaries()
    try:
        subprocess.run([found.program("postgres"), "--version"], user="nobody", check=True, capture_output=True)
    except OSError:
        pytest.skip("PostgreSQL's programs are where an ordinary user cannot run them")
    return found.directory
