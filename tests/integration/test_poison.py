"""T7a: a run that kills its workers fails in the end, and takes nobody with it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from catbird_django.definitions.registry import registry
from catbird_django.models import Event, TaskRun
from tests.integration.poison.tasks import neighbour, poison

ROOT = Path(__file__).parents[2]
QUICK = '{"LEASE": 1, "SWEEP_INTERVAL": 0.2, "POLL_INTERVAL": 0.2, "IDLE_POLL_INTERVAL": 0.2}'


@pytest.fixture(autouse=True)
def _known_here_too(_only_the_tasks_of_the_test: None) -> None:
    for known in (poison, neighbour):
        registry.add(known.definition)


def start_worker(database_url: str, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "tests.integration.poison.settings",
        "CATBIRD": QUICK,
    }
    command = [sys.executable, str(ROOT / "manage.py"), "catbird_worker", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)


def work_through_kills(database_url: str, *, seconds: float) -> int:
    """Keep one worker alive, as a supervisor does, until nothing is left; return how many were killed."""
    killed = 0
    deadline = time.monotonic() + seconds
    process = start_worker(database_url, "--concurrency", "4")
    try:
        while TaskRun.objects.live().exists():
            assert time.monotonic() < deadline, list(TaskRun.objects.live().values("id", "status", "lost_count")[:5])
            try:
                process.wait(timeout=0.1)
            except subprocess.TimeoutExpired:
                continue
            killed += 1
            process = start_worker(database_url, "--concurrency", "4")
    finally:
        process.kill()
        process.wait()
    return killed


def test_a_run_that_kills_its_workers_fails_and_its_neighbours_complete(database_url: str) -> None:
    """T7a: max_lost is 5, so the sixth loss is the last; from the second on it is claimed alone."""
    first = neighbour.run_many(range(50))
    [killer] = poison.run_many([None])
    rest = neighbour.run_many(range(50, 100))

    killed = work_through_kills(database_url, seconds=120)

    assert killed == 6
    failed = TaskRun.objects.get(id=killer.id)
    assert (failed.status, failed.lost_count, failed.delivery_count) == ("failed", 6, 6)
    assert failed.error["message"] == "lost its worker 6 times"
    assert Event.objects.filter(run_id=killer.id, event="lost").count() == 6
    neighbours = TaskRun.objects.filter(id__in=[handle.id for handle in (*first, *rest)])
    assert {run.status for run in neighbours} == {"completed"}
    for run in neighbours:
        # Beside the killer it is lost twice at most: then it is suspect too, and no two suspects run together.
        assert run.lost_count <= 2
        assert run.delivery_count == run.lost_count + 1
