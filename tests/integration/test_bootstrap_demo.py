"""The demo as a person meets it: it shows itself, stops cleanly, and leaves nothing behind whatever happens to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import ProxyHandler, build_opener

import psutil
import pytest

from project.demo.ports import FIRST_PORT, bind_exactly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.client import HTTPResponse

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0


class Demo:
    """A running `catbird_demo` with a home of its own."""

    def __init__(self, home: Path, *arguments: str, **environment: str) -> None:
        self.home = home
        inherited = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "catbird_demo", *arguments],
            cwd=CHECKOUT,
            env={**inherited, "DJANGO_SETTINGS_MODULE": "project.settings", "CATBIRD_HOME": str(home), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def read_until(self, words: str) -> str:
        for line in self.process.stdout:
            if words in line:
                return line
        pytest.fail(f"the demo ended without saying {words!r}: {self.process.stderr.read()}")

    def finish(self) -> tuple[int, str, str]:
        output, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, output, errors

    def processes(self) -> list[psutil.Process]:
        """Everything that was started for this home: web server, worker, watcher, PostgreSQL."""
        return [process for process in psutil.process_iter() if self._owns(process)]

    def _owns(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            return str(self.home) in " ".join(process.cmdline()) or process.environ().get("CATBIRD_HOME") == str(
                self.home
            )
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False


@pytest.fixture
def start_demo(place: Path) -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def start(*arguments: str, **environment: str) -> Demo:
        started.append(Demo(place / "home", *arguments, **environment))
        return started[-1]

    yield start
    for demo in started:
        demo.process.kill()
        demo.process.wait()
        eventually_gone(demo)


def ask(url: str) -> HTTPResponse:
    """Get a page, past any proxy that is set for other addresses."""
    return build_opener(ProxyHandler({})).open(url, timeout=PATIENCE)


def eventually_gone(demo: Demo) -> None:
    deadline = time.monotonic() + PATIENCE
    while left := demo.processes():
        assert time.monotonic() < deadline, f"still running: {[process.cmdline() for process in left]}"
        time.sleep(0.05)


def test_it_runs_its_work_says_where_to_look_and_stops(start_demo):
    demo = start_demo("--until-finished")

    exit_code, output, errors = demo.finish()

    assert exit_code == 0, errors
    assert re.search(r"http://127\.0\.0\.1:\d+/admin/", output)
    assert "admin, password admin" in output
    assert 'completed: {"text": "Hello, Ada!"}' in output
    assert "failed: ZeroDivisionError" in output
    eventually_gone(demo)


def test_ctrl_c_stops_everything_within_seconds(start_demo):
    demo = start_demo("--no-work")
    url = re.search(r"http://\S+", demo.read_until("Open"))[0]
    with ask(url) as page:
        policy = page.headers["Content-Security-Policy"]
    with ask(url.replace("/admin/", "/static/admin/css/base.css")) as styles:
        assert styles.status == 200
    assert "script-src 'self'" in policy

    asked_at = time.monotonic()
    demo.process.send_signal(signal.SIGINT)
    exit_code, output, errors = demo.finish()

    assert (exit_code, errors) == (0, "")
    assert "Stopped." in output
    assert time.monotonic() - asked_at < 5
    eventually_gone(demo)


def test_kill_9_leaves_nothing_running(start_demo):
    demo = start_demo("--no-work")
    demo.read_until("Open")
    assert len(demo.processes()) >= 5

    demo.process.kill()
    demo.process.wait()

    eventually_gone(demo)


def test_a_worker_that_ends_by_itself_ends_the_demo_too(start_demo):
    demo = start_demo("--no-work")
    demo.read_until("Open")
    (worker,) = (child for child in psutil.Process(demo.process.pid).children() if "catbird_worker" in child.cmdline())

    worker.kill()
    exit_code, _, errors = demo.finish()

    assert exit_code == 1
    assert errors.startswith("CommandError: the worker ended by itself; its last words")
    eventually_gone(demo)


def test_a_taken_port_is_an_error_only_when_it_was_asked_for(start_demo):
    with bind_exactly(0) as taken:
        demo = start_demo("--port", str(taken.getsockname()[1]))
        exit_code, output, errors = demo.finish()

    assert exit_code == 1
    assert re.fullmatch(r"CommandError: port \d+ cannot be used \(Address already in use\): name another .*\n", errors)
    assert "Starting" not in output
    eventually_gone(demo)


def test_without_a_port_the_next_free_one_is_taken(monkeypatch):
    from project.demo import ports

    with ports.bind(None) as first, ports.bind(None) as second:
        assert FIRST_PORT <= first.getsockname()[1] < second.getsockname()[1]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://nobody@127.0.0.1:1/nothing", "DATABASE_URL cannot be used"),
        ("mysql://nobody:secret@127.0.0.1/nothing", "DATABASE_URL does not name a PostgreSQL database"),
    ],
)
def test_a_database_that_is_of_no_use_is_explained_in_one_line(url, words):
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "project.settings", "DATABASE_URL": url}

    answer = subprocess.run(
        [sys.executable, "-m", "project.preflight"], cwd=CHECKOUT, env=environment, capture_output=True, text=True
    )

    assert answer.returncode == 1
    assert words in answer.stderr
    assert "secret" not in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_the_demo_itself_explains_a_database_that_does_not_answer(start_demo):
    demo = start_demo(DATABASE_URL="postgresql://nobody@127.0.0.1:1/nothing")

    exit_code, _, errors = demo.finish()

    assert exit_code == 1
    assert errors.startswith("CommandError: DATABASE_URL cannot be used")
    assert errors.count("\n") == 1
