"""`manage.py catbird_status`."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from catbird_django.models import Breaker
from catbird_django.monitoring import status
from tests.factories import TaskFactory, TaskRunFactory, WorkerFactory

pytestmark = pytest.mark.django_db


def output(*arguments: str) -> str:
    written = StringIO()
    call_command("catbird_status", *arguments, stdout=written)
    return written.getvalue()


def as_json() -> dict[str, Any]:
    result: dict[str, Any] = json.loads(output("--format", "json"))
    return result


def test_an_empty_database_says_what_to_start() -> None:
    text = output()

    assert "No worker is alive: start one with `manage.py catbird_worker`." in text
    assert "Nothing is queued" in text


def test_workers_are_counted_by_how_they_are() -> None:
    WorkerFactory(slots=4, draining_since=timezone.now(), abandoned_count=3)
    WorkerFactory(slots=6, sleeping=True, is_listening=True)
    WorkerFactory(silent=True)
    WorkerFactory(stopped=True)

    assert as_json()["workers"] == {
        "alive": 2,
        "sleeping": 1,
        "slots": 10,
        "silent": 1,
        "draining": 1,
        "listening": 1,
        "abandoned_handlers": 3,
    }
    assert "2 workers alive (10 slots, 1 asleep), 1 polling, 1 draining, 3 abandoned handlers; 1 silent." in output()


def test_runs_are_counted_by_queue_and_task() -> None:
    pack, ship = TaskFactory(name="pack", queue="mail"), TaskFactory(name="ship", queue="kitchen")
    TaskRunFactory.create_batch(3, task=pack)
    TaskRunFactory(task=pack, priority=9)
    TaskRunFactory(task=pack, queue="elsewhere")
    TaskRunFactory.create_batch(2, task=pack, delayed=True)
    TaskRunFactory(task=pack, started=True)
    TaskRunFactory(task=ship, canceling=True)
    TaskRunFactory.create_batch(2, task=ship, failed=True)
    TaskRunFactory(task=ship, completed=True)

    counts = {
        (row["queue"], row["task"]): (row["queued"], row["delayed"], row["started"], row["failed_last_hour"])
        for row in as_json()["tasks"]
    }

    assert counts == {
        ("mail", "pack"): (4, 2, 1, 0),
        ("elsewhere", "pack"): (1, 0, 0, 0),
        ("kitchen", "ship"): (0, 0, 1, 2),
    }


def test_runs_that_wait_for_another_attempt_are_canceling_or_have_completed_are_told_apart() -> None:
    task = TaskFactory(name="pack")
    TaskRunFactory(task=task, delayed=True)
    TaskRunFactory(task=task, delayed=True, failure_count=1, delivery_count=1)
    TaskRunFactory(task=task, started=True)
    TaskRunFactory(task=task, canceling=True)
    TaskRunFactory.create_batch(3, task=task, completed=True)

    [row] = as_json()["tasks"]

    assert (row["delayed"], row["retrying"]) == (2, 1)
    assert (row["started"], row["canceling"]) == (2, 1)
    assert row["completed_last_hour"] == 3


def test_suspect_runs_are_counted_among_the_queued() -> None:
    """T7a: they are claimed in another way, and wait like the others."""
    task = TaskFactory(name="pack")
    TaskRunFactory.create_batch(3, task=task)
    TaskRunFactory.create_batch(2, task=task, lost_count=2, delivery_count=2)

    [row] = as_json()["tasks"]

    assert row["queued"] == 5


def test_due_runs_are_counted_by_index() -> None:
    """However large the table is."""
    task = TaskFactory(name="pack")
    TaskRunFactory(task=task)
    TaskRunFactory(task=task, lost_count=2, delivery_count=2)

    with CaptureQueriesContext(connection) as queries:
        status.read_status(using="default")

    counts = [query["sql"] for query in queries if "lost_count" in query["sql"] and "COUNT(*)" in query["sql"]]
    assert len(counts) == 2
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        for statement in counts:
            cursor.execute(f"EXPLAIN {statement}")
            plan = "".join(line for (line,) in cursor.fetchall())
            assert "cb_task_runs_claimable" in plan or "cb_task_runs_suspect" in plan
        cursor.execute("RESET enable_seqscan")


def test_open_breakers_are_told() -> None:
    task = TaskFactory(name="pack")
    Breaker.objects.create(task=task, failure_count=5, open_until=timezone.now() + timedelta(minutes=2))
    Breaker.objects.create(task=TaskFactory(), failure_count=1)

    assert [breaker["task"] for breaker in as_json()["open_breakers"]] == ["pack"]
    assert "Circuit breaker of pack is open after 5 failures in a row: rests for 1 min" in output()


def test_watching_shows_it_again_until_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("catbird_django.management.commands.catbird_status.time.sleep", sleep)

    assert output("--watch", "0.5").count("No worker is alive") == 3
    assert pauses == [0.5] * 3


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_watching_too_often_or_never_is_refused(seconds: str) -> None:
    with pytest.raises(CommandError, match="--watch"):
        output(f"--watch={seconds}")


def test_a_failure_of_yesterday_is_not_counted() -> None:
    TaskRunFactory(failed=True, queued_at=timezone.now() - timedelta(days=1))

    assert as_json()["tasks"] == []


def test_the_oldest_due_run_tells_the_age() -> None:
    task = TaskFactory()
    TaskRunFactory(task=task, queued_at=timezone.now() - timedelta(minutes=3, seconds=5))
    TaskRunFactory(task=task, priority=5, queued_at=timezone.now() - timedelta(minutes=1))
    TaskRunFactory(task=task, delayed=True, queued_at=timezone.now() - timedelta(days=1))

    shown = as_json()

    assert shown["oldest_due_age"] == pytest.approx(185, abs=10)
    assert shown["tasks"][0]["oldest_due_age"] == shown["oldest_due_age"]
    assert "3 min" in output()


def test_counting_stops_at_a_limit_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "COUNT_LIMIT", 10)
    monkeypatch.setattr("catbird_django.management.commands.catbird_status.COUNT_LIMIT", 10)
    TaskRunFactory.create_batch(15, task=TaskFactory())

    shown = as_json()

    assert shown["tasks"][0]["queued"] == shown["count_limit"] == 10
    assert "10+" in output()


def test_the_keys_of_the_json_stay() -> None:
    TaskRunFactory()

    shown = as_json()

    assert list(shown) == [
        *("database", "workers", "oldest_due_age", "tasks", "flows", "open_breakers"),
        *("count_limit", "failed_reach", "flow_reach", "failed_within"),
    ]
    assert list(shown["tasks"][0]) == [
        *("queue", "task", "queued", "delayed", "retrying", "started", "canceling"),
        *("completed_last_hour", "failed_last_hour", "oldest_due_age"),
    ]


def test_the_columns_of_the_text_are_aligned() -> None:
    TaskRunFactory(task=TaskFactory(name="a"))
    TaskRunFactory(task=TaskFactory(name="a_much_longer_name"))

    lines = output().splitlines()[2:]

    headings = "queue task queued later retry started canceling done 1 h failed 1 h oldest due"
    assert lines[0].split() == headings.split()
    assert len({line.index("0") for line in lines[1:]}) == 1


def test_every_count_over_runs_has_a_limit_or_a_lower_bound() -> None:
    TaskRunFactory.create_batch(3)
    TaskRunFactory(failed=True)

    with CaptureQueriesContext(connection) as captured:
        output()

    counting = [query["sql"] for query in captured if "COUNT(" in query["sql"] and "cb_task_runs" in query["sql"]]
    assert counting
    assert all("LIMIT" in statement or '"id" >=' in statement for statement in counting)


def test_a_database_that_is_not_migrated_says_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION cb_schema_version()")

    with pytest.raises(CommandError, match=r"manage\.py migrate catbird"):
        output()


def test_an_unknown_database_is_refused() -> None:
    with pytest.raises(CommandError, match="--database"):
        output("--database", "nowhere")
