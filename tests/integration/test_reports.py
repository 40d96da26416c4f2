"""T14: what handlers say reaches the database, by way of a real worker."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError

from catbird_django import Snooze, TaskContext, task
from catbird_django.engine.tasks import Delivery, TaskClaim
from catbird_django.engine.watching import watch
from catbird_django.models import RunLog, TaskRun
from catbird_django.statuses import ReportVerdict
from catbird_django.worker import kinds, reports
from catbird_django.worker.reports import ClaimReporter, Reports, SaidLine
from tests.support import USING, second_session, until, work_off, working

pytestmark = pytest.mark.django_db(transaction=True)


def messages() -> list[str]:
    return list(RunLog.objects.order_by("id").values_list("message", flat=True))


def test_progress_is_seen_while_the_handler_works() -> None:
    goes_on = threading.Event()

    @task
    def count(input: int, ctx: TaskContext) -> None:
        ctx.progress(1, 4, "counting")
        goes_on.wait(20)
        ctx.progress(4, 4, "done")

    with working("count"):
        run_id = count.run(1).id
        until(lambda: TaskRun.objects.get(pk=run_id).progress is not None)
        during = TaskRun.objects.get(pk=run_id)
        goes_on.set()

    assert (during.status, during.progress["done"], during.progress["message"]) == ("started", 1, "counting")
    assert TaskRun.objects.get(pk=run_id).progress["done"] == 4


@pytest.mark.parametrize("is_async", [False, True])
def test_nothing_is_lost_when_the_worker_ends(is_async: bool) -> None:
    def talk(input: int, ctx: TaskContext) -> None:
        ctx.log(f"line {input}")

    async def talk_async(input: int, ctx: TaskContext) -> None:
        ctx.log(f"line {input}")

    declared = task(talk_async if is_async else talk)
    declared.run_many(range(50))
    work_off(declared.name)

    assert sorted(messages()) == sorted(f"line {number}" for number in range(50))


def test_lines_of_an_attempt_that_is_tried_again_at_once_are_kept_each_with_its_attempt() -> None:
    @task(max_retries=3, backoff=lambda failures: 0.001)
    def stumble(input: int, ctx: TaskContext) -> None:
        ctx.log(f"attempt {ctx.attempt}", level="warning")
        if ctx.attempt < 4:
            raise ValueError("again")

    stumble.run(1)
    with working("stumble"):
        until(lambda: TaskRun.objects.filter(status="completed").exists())

    stored = list(RunLog.objects.order_by("id").values_list("attempt", "message", "level"))
    assert stored == [(number, f"attempt {number}", "warning") for number in (1, 2, 3, 4)]


def test_lines_of_a_run_that_is_snoozed_are_kept() -> None:
    @task
    def sleepy(input: int, ctx: TaskContext) -> None:
        ctx.log("not yet")
        ctx.progress(1, 2)
        raise Snooze(3600)

    sleepy.run(1)
    with working("sleepy"):
        until(lambda: TaskRun.objects.filter(visible_at__isnull=False).exists())

    assert messages() == ["not yet"]


def test_a_handler_that_talks_without_end_fills_neither_memory_nor_table() -> None:
    @task
    def talk(input: int, ctx: TaskContext) -> None:
        for number in range(100_000):
            ctx.log(f"line {number}")

    talk.run(1)
    work_off("talk")

    assert len(messages()) == 1000
    assert messages()[-1].startswith("The log is full")


def test_open_pages_are_told_of_progress_once_for_a_batch() -> None:
    @task
    def count(input: int, ctx: TaskContext) -> None:
        for done in range(100):
            ctx.progress(done)
        goes_on.wait(20)

    goes_on = threading.Event()
    with second_session() as session:
        session.execute("LISTEN cb_live")
        session.commit()
        watch(timedelta(seconds=30), using=USING)
        with working("count"):
            run_id = count.run(1).id
            until(lambda: TaskRun.objects.get(pk=run_id).progress is not None)
            heard = [notice.payload for notice in session.notifies(timeout=1)]
            goes_on.set()

    assert heard == [f"task_runs {run_id}"]


# The sending itself


def some_claim() -> TaskClaim:
    return TaskClaim(1, uuid4(), "default", 1, 0, "{}", None, 1, 0, 0)


def line(message: str, delivery: Delivery | None = None) -> SaidLine:
    return SaidLine(delivery or Delivery(1, uuid4()), 1, "info", message, 0.0)


def test_silence_costs_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(kinds, "TASKS", replace(kinds.TASKS, log=lambda lines, **_: calls.append(lines)))
    monkeypatch.setattr(kinds, "TASKS", replace(kinds.TASKS, report=lambda progress, **_: calls.append(progress)))
    part = Reports(using=USING, notify=False)
    part.start()

    part.send_words_of([Delivery(1, uuid4())])
    assert part.stop(timeout=5)

    assert calls == []


def test_of_much_progress_only_the_newest_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    def report_tasks(progress: Any, **_: Any) -> list[ReportVerdict]:
        sent.extend(progress)
        return [ReportVerdict.REPORTED for _ in progress]

    monkeypatch.setattr(kinds, "TASKS", replace(kinds.TASKS, report=report_tasks))
    part = Reports(using=USING, notify=False)
    reporter = ClaimReporter(some_claim(), reports=part, is_canceled=lambda claim: False)
    for done in range(1000):
        reporter.progress(done, 1000, "")
    part.start()
    part.stop(timeout=5)

    assert [text for _, text in sent] == ['{"done": 999, "total": 1000, "message": ""}']


def test_words_are_kept_while_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    is_away = threading.Event()
    was_asked = threading.Event()
    is_away.set()

    def log_tasks(lines: Any, **_: Any) -> None:
        was_asked.set()
        if is_away.is_set():
            raise OperationalError("away")
        sent.extend(line.message for line in lines)

    monkeypatch.setattr(kinds, "TASKS", replace(kinds.TASKS, log=log_tasks))
    part = Reports(using=USING, notify=False)
    part.start()
    part.add_line(line("first"))
    assert was_asked.wait(10)
    part.add_line(line("second"))
    is_away.clear()

    assert part.stop(timeout=10)
    assert sent == ["first", "second"]


def test_what_the_database_does_not_take_is_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(reports, "MAX_CHARACTERS", 100)
    monkeypatch.setattr(
        kinds, "TASKS", replace(kinds.TASKS, log=lambda lines, **_: sent.extend(line.message for line in lines))
    )
    part = Reports(using=USING, notify=False)
    for _ in range(100):
        part.add_line(line("x" * 10))
    with caplog.at_level(logging.WARNING, "catbird.worker"):
        part.start()
        part.stop(timeout=5)

    assert len(sent) == 11
    assert [record.dropped for record in caplog.records] == [89]


def test_a_word_that_cannot_be_stored_does_not_keep_out_its_neighbours(caplog: pytest.LogCaptureFixture) -> None:
    @task
    def talk(input: int, ctx: TaskContext) -> None:
        ctx.reporter.log("info", "good")
        ctx.reporter.log("info", "ba\x00d")  # past the cleaning
        ctx.reporter.log("info", "good too")

    talk.run(1)
    work_off("talk")

    assert messages() == ["good", "good too"]
