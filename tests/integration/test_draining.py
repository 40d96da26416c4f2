"""W8: a worker that drains claims no more, and ends when what it runs has ended, however long that takes."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connections
from django.db.models import QuerySet

from catbird_django import task
from catbird_django.conf import get_settings
from catbird_django.definitions.registry import registry
from catbird_django.models import TaskRun
from catbird_django.models import Worker as WorkerRow
from catbird_django.statuses import TaskStatus
from catbird_django.worker.recycling import Limits
from catbird_django.worker.worker import Worker, WorkerOptions
from tests.support import LONG_ENOUGH, until, working

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_draining_worker_outlives_the_grace_and_claims_no_more() -> None:
    begun, release = threading.Event(), threading.Event()

    @task
    def slow() -> str:
        begun.set()
        assert release.wait(20)
        return "done"

    running = slow.run()
    with working("slow", concurrency=1, shutdown_grace=timedelta(milliseconds=1)) as worker:
        assert begun.wait(10)
        worker.drain()
        until(lambda: WorkerRow.objects.get(id=worker.id).draining_since)
        later = slow.run()
        release.set()

        until(lambda: WorkerRow.objects.get(id=worker.id).stopped_at)

    assert running.status() is TaskStatus.COMPLETED
    assert later.status() is TaskStatus.QUEUED
    assert not worker.needs_replacement


def test_a_draining_worker_gives_back_what_it_has_not_begun() -> None:
    release = threading.Event()
    begun: list[int] = []

    @task
    def mail(input: int) -> None:
        begun.append(input)
        if input >= 200:
            assert release.wait(20)

    mail.run_many(list(range(400)))  # quick ones first, so that others are claimed ahead
    with working("mail", concurrency=1) as worker:
        until(lambda: len(begun) > 200)
        worker.drain()
        until(lambda: WorkerRow.objects.get(id=worker.id).draining_since)

        until(lambda: TaskRun.objects.started().count() == 1)
        release.set()

    assert TaskRun.objects.filter(failure_count=0, lost_count=0).count() == 400


def test_once_claims_one_time_what_fits() -> None:
    """W1."""

    @task
    def mail() -> None: ...

    mail.run_many([None] * 5)
    run_worker(WorkerOptions(concurrency=2, once=True))
    assert completed().count() == 2

    run_worker(WorkerOptions(concurrency=10, once=True))
    assert completed().count() == 5

    run_worker(WorkerOptions(concurrency=10, once=True))  # there is nothing to do, and it ends all the same


def test_after_so_many_runs_it_makes_room_for_another() -> None:
    @task
    def mail() -> None: ...

    mail.run_many([None] * 2000)
    worker = run_worker(WorkerOptions(concurrency=1, limits=Limits(runs=3)))

    done = completed().count()
    assert 3 <= done < 2000
    assert TaskRun.objects.filter(status=TaskStatus.QUEUED).count() == 2000 - done
    assert worker.done_because.endswith(" runs")


def test_a_worker_that_has_grown_too_large_makes_room_for_another() -> None:
    worker = run_worker(WorkerOptions(concurrency=1, limits=Limits(memory=1)))

    assert worker.needs_replacement
    assert worker.done_because.endswith(" MB of memory")


def run_worker(options: WorkerOptions) -> Worker:
    """Run a worker that is expected to end by itself."""
    worker = Worker(options, replace(get_settings(), shutdown_grace=timedelta(seconds=5)), registry)
    worker.enter()
    thread = threading.Thread(target=lambda: (worker.run(), connections.close_all()))
    thread.start()
    thread.join(timeout=LONG_ENOUGH)
    assert not thread.is_alive()
    return worker


def completed() -> QuerySet[TaskRun]:
    return TaskRun.objects.filter(status=TaskStatus.COMPLETED)
