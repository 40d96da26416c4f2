"""A task from `.run()` to its output, with a real worker."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection, transaction

import catbird_django
from catbird_django import (
    InvalidOption,
    PayloadError,
    Task,
    TaskContext,
    TaskFailed,
    UnknownName,
    run_task,
    task,
)
from catbird_django.definitions.registry import registry
from catbird_django.engine import workers
from catbird_django.models import TaskRun
from catbird_django.models import Worker as WorkerRow
from catbird_django.statuses import TaskStatus
from tests.support import USING, register_worker, work_off

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Order:
    id: int
    total: float


@dataclass
class Receipt:
    order_id: int
    text: str


def test_a_sync_task_gives_its_typed_output() -> None:
    """T1, T2."""

    @task
    def charge(input: Order) -> Receipt:
        return Receipt(order_id=input.id, text=f"paid {input.total}")

    handle = charge.run(Order(id=7, total=9.5))
    work_off("charge")

    assert handle.wait(timeout=5) == Receipt(order_id=7, text="paid 9.5")
    assert handle.status() is TaskStatus.COMPLETED


def test_an_async_task_gives_its_typed_output() -> None:
    @task
    async def charge(input: Order) -> Receipt:
        await asyncio.sleep(0)
        return Receipt(order_id=input.id, text="paid")

    handle = charge.run({"id": 7, "total": 1})
    work_off("charge")

    assert handle.wait(timeout=5) == Receipt(order_id=7, text="paid")


def test_calling_a_task_just_calls_the_function() -> None:
    """T1."""

    @task
    def add(input: int) -> int:
        return input + 1

    assert add(1) == 2
    assert TaskRun.objects.count() == 0


def test_a_task_may_take_nothing_or_the_context_too() -> None:
    seen: dict[str, Any] = {}

    @task
    def nothing() -> str:
        return "did it"

    @task(queue="mail")
    def with_context(input: int, ctx: TaskContext) -> None:
        seen.update(run_id=ctx.run_id, attempt=ctx.attempt, headers=ctx.headers, task=ctx.task, queue=ctx.queue)

    first, second = nothing.run(), with_context.run(1, headers={"trace": "abc"})
    work_off("nothing", "with_context")

    assert first.wait(timeout=5) == "did it"
    assert second.wait(timeout=5) is None
    assert seen == {
        "run_id": second.id,
        "attempt": 1,
        "headers": {"trace": "abc"},
        "task": "with_context",
        "queue": "mail",
    }


def test_a_failing_task_fails_with_its_error_and_its_neighbours_complete() -> None:
    """T5."""

    @task
    def divide(input: int) -> float:
        return 10 / input

    bad, good = divide.run(0), divide.run(5)
    work_off("divide")

    assert good.wait(timeout=5) == 2
    with pytest.raises(TaskFailed, match="division by zero") as caught:
        bad.wait(timeout=5)
    assert caught.value.error["type"] == "ZeroDivisionError"
    assert "return 10 / input" in caught.value.error["traceback"]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(1),
        KeyboardInterrupt(),
        Unprintable(),
        ValueError("x" * 50_000_000),
        ValueError("NUL \x00 and \ud800"),
    ],
    ids=["exit", "interrupt", "unprintable", "huge", "unstorable"],
)
def test_whatever_a_handler_raises_is_a_failed_run_and_the_worker_lives(error: BaseException) -> None:
    """RELIABILITY 11."""

    @task
    def strange(input: bool) -> None:
        if input:
            raise error

    bad, good = strange.run(True), strange.run(False)
    work_off("strange")

    assert good.wait(timeout=5) is None
    stored = TaskRun.objects.get(id=bad.id).error
    assert stored["type"] == type(error).__name__
    assert len(stored["message"]) < 9_000


@pytest.mark.parametrize(
    "value", [object(), float("nan"), "\x00", {1, 2}, "x" * 2_000_000], ids=["object", "nan", "nul", "set", "huge"]
)
def test_an_output_that_cannot_be_stored_fails_the_run(value: Any) -> None:
    """T2a: it never hangs."""

    @task
    def produce() -> dict[str, int]:
        return value

    handle = produce.run()
    work_off("produce")

    with pytest.raises(TaskFailed, match="output"):
        handle.wait(timeout=5)


def test_a_wrong_input_is_refused_before_sql_and_the_field_is_named() -> None:
    """T2a, R11: the caller's transaction is not poisoned."""

    @task
    def charge(input: Order) -> None: ...

    with transaction.atomic():
        with pytest.raises(PayloadError, match=r"input\.total"):
            charge.run({"id": 1, "total": "a lot"})
        assert TaskRun.objects.count() == 0


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("place", ["input", "headers"])
@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), "a\x00b", "\ud800", b"bytes", object(), {1: "a"}, nested(200), "x" * 2**20],
    ids=["nan", "infinity", "nul", "surrogate", "bytes", "object", "key", "deep", "big"],
)
def test_what_cannot_be_stored_is_refused_before_sql(value: Any, place: str) -> None:
    """R11, T2a: neither as an input nor in the headers, and the caller's transaction stays usable."""

    @task
    def store(input: Any) -> None: ...

    with transaction.atomic():
        with pytest.raises(PayloadError, match=place):
            store.run(value) if place == "input" else store.run(1, headers={"a": value})
        assert TaskRun.objects.count() == 0


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"priority": 101}, "priority"),
        ({"priority": -101}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"queue": "No!"}, "queue"),
        ({"headers": [1]}, "headers"),
    ],
)
def test_a_bad_option_is_refused_and_named(options: dict[str, Any], name: str) -> None:
    @task
    def charge() -> None: ...

    with pytest.raises(InvalidOption, match=name):
        charge.run(**options)


def test_an_unknown_option_is_a_type_error_that_lists_the_known_ones() -> None:
    @task
    def charge() -> None: ...

    with pytest.raises(TypeError, match=r"prioritty.*priority"):
        charge.run(prioritty=1)


def test_a_run_commits_or_vanishes_with_the_callers_transaction() -> None:
    """The promise: enqueue commits or vanishes with the caller's transaction."""

    @task
    def charge() -> None: ...

    with transaction.atomic():
        charge.run()
        with transaction.atomic():
            charge.run()
            transaction.set_rollback(True)
    with transaction.atomic():
        charge.run()
        transaction.set_rollback(True)

    assert TaskRun.objects.count() == 1


def test_a_task_registered_in_a_rolled_back_transaction_is_registered_again() -> None:
    """F21: registered by the first run, in the caller's transaction."""

    @task
    def charge() -> str:
        return "ok"

    with transaction.atomic():
        charge.run()
        transaction.set_rollback(True)

    handle = charge.run()
    work_off("charge")
    assert handle.wait(timeout=5) == "ok"


def test_a_task_whose_row_vanished_is_registered_again() -> None:
    @task
    def charge() -> str:
        return "ok"

    charge.run()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE cb_tasks, cb_task_runs")

    handle = charge.run()
    work_off("charge")
    assert handle.wait(timeout=5) == "ok"


def test_bulk_runs_come_back_in_order_and_take_one_round_trip(django_assert_num_queries: Any) -> None:
    """T13."""

    @task
    def double(input: int) -> int:
        return input * 2

    double.run(0)
    with django_assert_num_queries(1):
        handles = double.run_many(range(1000))
    work_off("double")

    assert [handle.wait(timeout=5) for handle in handles[::100]] == [number * 2 for number in range(0, 1000, 100)]
    assert double.run_many([]) == []


def test_a_run_takes_one_round_trip_unless_a_worker_sleeps(django_assert_num_queries: Any) -> None:
    """R9a: the call that queues says whether somebody sleeps; only then is there a second one, which wakes them."""

    @task
    def nothing() -> None: ...

    nothing.run()
    with django_assert_num_queries(1):
        nothing.run()

    other, sleeper = register_worker(queues=["other"]), register_worker()
    workers.announce_sleep(other, using=USING)
    with django_assert_num_queries(1):
        nothing.run()

    workers.announce_sleep(sleeper, using=USING)
    with django_assert_num_queries(2):
        nothing.run()
    assert set(WorkerRow.objects.filter(sleeping_since__isnull=False).values_list("id", flat=True)) == {other}


def test_many_runs_in_one_transaction_ask_once_for_sleepers(django_assert_num_queries: Any) -> None:
    @task
    def double(input: int) -> int:
        return input * 2

    double.run(0)
    # BEGIN, ten runs, COMMIT, one look for sleepers.
    with django_assert_num_queries(13), transaction.atomic():
        for number in range(10):
            double.run(number)


def test_a_task_can_be_run_by_name() -> None:
    @task
    def double(input: int) -> int:
        return input * 2

    handle = run_task("double", 4)
    work_off("double")

    assert handle.wait(timeout=5) == 8


def test_an_unknown_name_is_refused_and_the_transaction_stays_usable() -> None:
    with transaction.atomic():
        with pytest.raises(UnknownName, match="nobody"):
            run_task("nobody")
        assert TaskRun.objects.count() == 0


def test_a_declared_task_is_run_by_whoever_has_its_handler() -> None:
    """T1: `Task("name", …)` declares a task that another process handles."""
    remote: Task[int, int] = Task("remote", input=int, output=int)

    handle = remote.run(3)
    with pytest.raises(UnknownName):
        remote(3)
    with pytest.raises(PayloadError):
        remote.run("three")  # type: ignore[arg-type] # on purpose

    def handle_it(input: int) -> int:
        return input * 2

    registry.tasks.clear()  # as in another process
    Task("remote", handler=handle_it)
    work_off("remote")
    assert handle.wait(timeout=5) == 6


def test_higher_priorities_are_served_first() -> None:
    """T4, T4b: from -100 to 100."""
    served: list[int] = []

    @task
    def serve(input: int) -> None:
        served.append(input)

    for priority in (0, -100, 100, 7):
        serve.run(priority, priority=priority)
    work_off("serve", concurrency=1)

    assert served == [100, 7, 0, -100]


def test_a_worker_serves_only_its_queues_and_tasks() -> None:
    """W1."""

    @task(queue="mail")
    def mail() -> None: ...

    @task
    def other() -> None: ...

    mine, not_mine, other_queue = mail.run(), other.run(), mail.run(queue="express")
    work_off("mail", queues=["mail"])

    assert mine.status() is TaskStatus.COMPLETED
    assert not_mine.status() is other_queue.status() is TaskStatus.QUEUED


def test_a_handler_that_breaks_its_connection_harms_nobody() -> None:
    """W7: in a transaction, closed, or aborted."""

    @task
    def break_it(input: str) -> None:
        if input == "open":
            transaction.set_autocommit(False)
            TaskRun.objects.count()
        elif input == "closed":
            connection.cursor()
            connection.connection.close()
        elif input == "aborted":
            transaction.atomic().__enter__()
            connection.cursor().execute("SELECT 1/0")
        else:
            assert TaskRun.objects.count() > 0

    for kind in ("open", "closed", "aborted"):
        break_it.run(kind)
    fine = break_it.run_many(["fine"] * 50)
    work_off("break_it", concurrency=1)

    assert {handle.status() for handle in fine} == {TaskStatus.COMPLETED}


def test_a_worker_presents_itself_and_says_goodbye() -> None:
    """W1."""

    @task
    def charge() -> None: ...

    worker = work_off("charge", concurrency=3, queues=["default"])

    row = WorkerRow.objects.get(id=worker.id)
    assert (row.handlers, row.queues, row.slots) == (["charge"], ["default"], 3)
    assert (row.host, row.pid, row.version) == (socket.gethostname(), os.getpid(), catbird_django.__version__)
    assert row.boot_id != WorkerRow.objects.get(id=work_off("charge").id).boot_id
    assert row.stopped_at is not None


def test_an_async_handler_has_database_connections_of_its_own() -> None:
    """W7: each in a thread-sensitive context of its own, closed afterwards."""
    from asgiref.sync import sync_to_async

    pids: list[int] = []

    def backend_pid() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return cursor.fetchone()[0]

    together = asyncio.Barrier(2)

    @task
    async def ask() -> None:
        await together.wait()
        pids.append(await sync_to_async(backend_pid)())
        await together.wait()

    ask.run_many([None, None])
    work_off("ask")

    assert len(set(pids)) == 2
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (%s)", [pids])
        assert cursor.fetchone()[0] == 0
