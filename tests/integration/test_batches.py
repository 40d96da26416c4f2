"""W2, W6: how often a worker talks to the database about what it holds."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from catbird_django import task
from catbird_django.models import TaskRun
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
