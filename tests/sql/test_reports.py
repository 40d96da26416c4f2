"""T14, R5: progress and log lines count for the delivery that said them, and for no other."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from catbird_django.engine import tasks
from catbird_django.engine.reports import LogLine, log_tasks, report_tasks
from catbird_django.engine.tasks import Delivery, TaskClaim
from catbird_django.models import RunLog, TaskRun
from tests.support import USING, claim, queue_runs, register, register_worker


@pytest.fixture
def claims() -> list[TaskClaim]:
    [task_id] = register("talk")
    queue_runs("talk", 2)
    return claim((task_id, 0), worker_id=register_worker())


def report(*progress: tuple[Delivery, str]) -> list[str]:
    return [verdict.value for verdict in report_tasks(progress, notify=True, using=USING)]


def log(*lines: tuple[Delivery, str], age: float = 0) -> list[str]:
    said = [LogLine(delivery, 1, "info", message, timedelta(seconds=age)) for delivery, message in lines]
    return [verdict.value for verdict in log_tasks(said, using=USING)]


def messages() -> list[str]:
    return list(RunLog.objects.order_by("id").values_list("message", flat=True))


def test_progress_is_kept_with_the_run_and_its_time(claims: list[TaskClaim]) -> None:
    first, second = claims

    assert report((first.delivery, '{"done": 1}'), (second.delivery, '{"done": 2}')) == ["reported", "reported"]

    progress = TaskRun.objects.get(pk=second.run_id).progress
    assert progress["done"] == 2
    assert "at" in progress


def test_progress_of_another_delivery_changes_nothing(claims: list[TaskClaim]) -> None:
    """R5."""
    mine, other = claims

    assert report((Delivery(other.run_id, str(uuid4())), '{"done": 1}'), (mine.delivery, '{"done": 1}')) == [
        "stale",
        "reported",
    ]
    assert TaskRun.objects.get(pk=other.run_id).progress is None


def test_words_that_come_after_the_end_still_count(claims: list[TaskClaim]) -> None:
    delivery = claims[0].delivery
    tasks.complete_tasks([(delivery, "1")], notify=False, using=USING)

    assert report((delivery, '{"done": 1}')) == ["reported"]
    assert log((delivery, "late")) == ["logged"]


def test_words_that_come_after_the_run_was_given_back_do_not(claims: list[TaskClaim]) -> None:
    delivery = claims[0].delivery
    tasks.release_tasks([(delivery, None)], notify=False, using=USING)

    assert report((delivery, '{"done": 1}')) == ["stale"]
    assert log((delivery, "late")) == ["stale"]
    assert messages() == []


def test_lines_are_kept_in_the_order_said_at_the_time_they_were_said(claims: list[TaskClaim]) -> None:
    first, second = (each.delivery for each in claims)

    assert log((first, "a"), (second, "b"), (first, "c"), age=60) == ["logged"] * 3
    assert messages() == ["a", "b", "c"]
    line = RunLog.objects.get(message="c")
    assert (line.run_kind, line.run_id, line.level, line.attempt) == ("task", first.run_id, "info", 1)
    queued_at = TaskRun.objects.get(pk=first.run_id).queued_at
    assert timedelta(seconds=50) < queued_at - line.at < timedelta(seconds=61)


def test_a_stale_line_does_not_keep_out_its_neighbours(claims: list[TaskClaim]) -> None:
    assert log((Delivery(claims[0].run_id, str(uuid4())), "no"), (claims[1].delivery, "yes")) == ["stale", "logged"]
    assert messages() == ["yes"]


def test_a_log_ends_after_a_thousand_lines_and_says_so(claims: list[TaskClaim]) -> None:
    talker, other = (each.delivery for each in claims)

    first = log(*[(talker, f"line {number}") for number in range(990)])
    second = log(*[(talker, f"more {number}") for number in range(20)], (other, "quiet"))
    third = log((talker, "even more"))

    assert first == ["logged"] * 990
    assert second == ["logged"] * 9 + ["dropped"] * 11 + ["logged"]
    assert third == ["dropped"]
    lines = RunLog.objects.filter(run_id=talker.run_id).order_by("id")
    assert lines.count() == 1000
    assert (lines.last().level, lines.last().message[:15]) == ("warning", "The log is full")


def test_a_long_line_is_cut(claims: list[TaskClaim]) -> None:
    log((claims[0].delivery, "x" * 5000))

    assert messages() == ["x" * 4000]
