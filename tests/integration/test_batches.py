"""W2, W6: how often a worker talks to the database about what it holds."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from catbird_django import task
from catbird_django.engine.call import Function
from catbird_django.models import TaskRun, Worker
from catbird_django.statuses import TaskStatus
from tests.support import until, work_off, working

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("is_async", [False, True])
def test_quick_runs_are_claimed_and_settled_in_batches(is_async: bool) -> None:
    """W6. The time of a row is that of the statement that wrote it: so many times, so many calls."""

    def quick(input: int) -> int:
        return input

    async def quick_async(input: int) -> int:
        return input

    declared = task(name="quick")(quick_async if is_async else quick)
    declared.run_many(range(1000))
    work_off("quick")

    runs = TaskRun.objects.filter(status="completed")
    assert runs.count() == 1000
    assert runs.values("finished_at").distinct().count() < 250
    assert runs.values("started_at").distinct().count() < 250


def test_an_idle_worker_asks_for_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """W6: at most one statement in two seconds while it listens, also of the worker that does the upkeep."""

    @task
    def nothing() -> None: ...

    asked: list[str] = []
    rows = Function.rows

    def count(function: Function, using: str, **arguments: Any) -> list[tuple[Any, ...]]:
        if threading.current_thread() is not threading.main_thread():
            asked.append(function.name)
        return rows(function, using, **arguments)

    with working("nothing"):
        until(lambda: Worker.objects.filter(sleeping_since__isnull=False, is_listening=True).exists())
        monkeypatch.setattr(Function, "rows", count)
        threading.Event().wait(10)  # the time in which it is idle is what is measured

    before_the_end = [name for name in asked if name not in {"cb_stop_worker", "cb_read_task_runs"}]
    # Five on average; what is rarely asked for may fall into these ten seconds. A poll a second would be ten.
    assert 2 <= len(before_the_end) <= 8, asked


def test_a_lease_is_renewed_every_third_of_it() -> None:
    """W2: from a thread of its own, while the handler is busy."""
    release = threading.Event()
    lease = timedelta(seconds=3)

    @task
    def slow() -> None:
        release.wait(20)

    with working("slow", lease=lease):
        handle = slow.run()
        until(lambda: handle.status() is TaskStatus.STARTED)
        leases = [TaskRun.objects.get().lease_until]
        for _ in range(2):
            until(lambda: TaskRun.objects.get().lease_until > leases[-1])
            leases.append(TaskRun.objects.get().lease_until)
        release.set()

    # The first depends on when the run was claimed; the second is a full round later.
    assert leases[1] - leases[0] < lease / 2
    assert lease / 6 < leases[2] - leases[1] < lease / 2
