"""W1: in DEBUG a worker starts anew when a file of the project changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from catbird_django import run_task, task
from catbird_django.models import Worker
from tests.support import LONG_ENOUGH, until, until_no_transaction_is_open

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).parents[2]
TASKS = "from catbird_django import task\n\n\n@task\ndef answer() -> str:\n    return {!r}\n"
SETTINGS = """
from project.settings_test import *
from project.settings_test import INSTALLED_APPS

DEBUG = True
INSTALLED_APPS = [*INSTALLED_APPS, "edited"]
"""


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """The tasks.py of an app that is being worked on."""
    (tmp_path / "edited").mkdir()
    (tmp_path / "edited" / "__init__.py").touch()
    (tmp_path / "edited_settings.py").write_text(SETTINGS)
    (tmp_path / "edited" / "tasks.py").write_text(TASKS.format("first"))
    return tmp_path / "edited" / "tasks.py"


@pytest.fixture
def start(database_url: str, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "DATABASE_URL": database_url,
            "DJANGO_SETTINGS_MODULE": "edited_settings",
            "PYTHONPATH": str(tmp_path),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, str(ROOT / "manage.py"), "catbird_worker", *arguments]
        process = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
    until_no_transaction_is_open()


def change(tasks: Path, text: str) -> None:
    """Write a file as an editor does, with a time that differs from the last one's."""
    changed_at = tasks.stat().st_mtime + 10
    tasks.write_text(text)
    os.utime(tasks, (changed_at, changed_at))


def asleep() -> list[int]:
    return list(Worker.objects.filter(stopped_at=None).exclude(sleeping_since=None).values_list("id", flat=True))


def answer() -> object:
    return run_task("answer").wait(timeout=LONG_ENOUGH)


def declare_answer() -> None:
    @task
    def answer() -> str:
        return ""


def test_a_worker_starts_anew_when_a_file_changes(start: Callable[..., subprocess.Popen[str]], tasks: Path) -> None:
    declare_answer()
    process = start()
    until(asleep)
    [first] = asleep()
    assert answer() == "first"

    change(tasks, TASKS.format("second"))

    until(lambda: asleep() and first not in asleep())
    assert answer() == "second"
    assert process.poll() is None
    assert Worker.objects.get(id=first).stopped_at is not None
    assert {worker.pid for worker in Worker.objects.all()} == {process.pid}


def test_a_mistake_waits_for_its_correction(start: Callable[..., subprocess.Popen[str]], tasks: Path) -> None:
    declare_answer()
    tasks.write_text("def answer(")
    process = start()
    with pytest.raises(AssertionError, match="did not happen"):
        until(lambda: process.poll() is not None or Worker.objects.exists(), seconds=5)

    change(tasks, TASKS.format("mended"))

    assert answer() == "mended"
    assert process.poll() is None


def test_noreload_leaves_the_worker_as_it_is(start: Callable[..., subprocess.Popen[str]], tasks: Path) -> None:
    declare_answer()
    start("--noreload")
    until(asleep)

    change(tasks, TASKS.format("second"))

    with pytest.raises(AssertionError, match="did not happen"):
        until(lambda: Worker.objects.count() > 1, seconds=4)
    assert answer() == "first"
