"""Real worker processes on the test database, for tests of signals, supervisors and crashes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.support import until_no_transaction_is_open

ROOT = Path(__file__).parents[2]

StartWorker = Callable[..., "subprocess.Popen[str]"]


@contextmanager
def worker_processes(database_url: str, *, settings: str = "tests.unruly.settings") -> Iterator[StartWorker]:
    """Start worker processes, and kill what is left of them and of their children."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        surroundings = {
            **os.environ,
            "DATABASE_URL": database_url,
            "DJANGO_SETTINGS_MODULE": settings,
            "PYTHONUNBUFFERED": "1",
            **environment,
        }
        command = [sys.executable, str(ROOT / "manage.py"), "catbird_worker", *arguments]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, env=surroundings, text=True, **pipes)
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            family = children_of(process)
            process.kill()
            for child in family:
                if child.is_running():
                    child.kill()
            process.communicate()
        until_no_transaction_is_open()


def children_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        return []


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
