"""T4, T6, T13: conditions, expiry, tags, debounce, retry and many runs, as an application uses them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from catbird_django import (
    InvalidOption,
    PayloadError,
    RunExpired,
    RunNotFinished,
    RunNotFound,
    RunSkipped,
    TaskFailed,
    aretry_task,
    retry_task,
    task,
)
from catbird_django.client import bulk
from catbird_django.models import RunTag, Task, TaskRun
from catbird_django.statuses import TaskStatus
from tests.support import until, work_off, working

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_run_whose_condition_is_false_is_skipped_and_its_waiter_told() -> None:
    """T6."""

    @task(condition="input.amount gte 10")
    def charge(input: dict[str, Any]) -> int:
        return int(input["amount"])

    small, large, odd = charge.run({"amount": 9}), charge.run({"amount": 10}), charge.run({"amount": "10 EUR"})
    work_off("charge")

    assert large.wait(timeout=5) == 10
    with pytest.raises(RunSkipped):
        small.wait(timeout=5)
    with pytest.raises(TaskFailed, match=r"input\.amount: gte"):
        odd.wait(timeout=5)
    assert Task.objects.get(name="charge").condition["text"] == "input.amount gte 10"


def test_a_waiter_is_told_that_a_run_has_expired() -> None:
    """T4: the upkeep knows when, and does not wait for its next round."""

    @task
    def mail() -> None: ...

    @task
    def other() -> None: ...

    with working("other", sweep_interval=timedelta(hours=1)):
        other.run().wait(timeout=10)
        handle = mail.run(expires_at=timezone.now() + timedelta(seconds=0.5))

        with pytest.raises(RunExpired):
            handle.wait(timeout=15)


def test_an_expired_run_is_never_started() -> None:
    @task
    def mail() -> None: ...

    handle = mail.run(expires_at=timezone.now() + timedelta(hours=1))
    TaskRun.objects.update(expires_at=Now() - timedelta(seconds=1))
    work_off("mail")

    assert handle.status() is TaskStatus.EXPIRED
    assert TaskRun.objects.get().started_at is None


def test_tags_of_a_run_can_be_found() -> None:
    @task
    def mail() -> None: ...

    handle = mail.run(tags=["red", "red", "Größe L"])

    assert set(RunTag.objects.values_list("run_id", "tag")) == {(handle.id, "red"), (handle.id, "Größe L")}


def test_debounced_runs_become_one_with_the_last_input() -> None:
    """T13."""
    seen: list[int] = []

    @task
    def index(input: int) -> None:
        seen.append(input)

    handles = [index.run(number, debounce_key="page-1", delay=0.2) for number in range(5)]
    with working("index"):
        handles[0].wait(timeout=10)
        after = index.run(9, debounce_key="page-1")
        after.wait(timeout=10)

    assert {handle.id for handle in handles} == {handles[0].id} != {after.id}
    assert seen == [4, 9]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"expires_at": datetime(2030, 1, 1)}, "expires_at: "),
        ({"expires_at": 5}, "expires_at: "),
        ({"expires_at": datetime(2030, 1, 1, tzinfo=UTC), "run_at": datetime(2031, 1, 1, tzinfo=UTC)}, "expires_at: "),
        ({"tags": "red"}, "tags: "),
        ({"tags": ["x"] * 21}, "tags: "),
        ({"tags": [""]}, "tags: "),
        ({"tags": ["a\x00"]}, "tags: "),
        ({"tags": ["\ud800"]}, "tags: "),
        ({"tags": [7]}, "tags: "),
        ({"tags": None}, "tags: "),
        ({"debounce_key": ""}, "debounce_key: "),
        ({"debounce_key": "a", "idempotency_key": "b"}, "idempotency_key: cannot be given together with debounce_key"),
    ],
)
def test_a_bad_option_is_refused_before_sql(options: dict[str, Any], complaint: str) -> None:
    @task
    def mail() -> None: ...

    with pytest.raises(InvalidOption, match=complaint):
        mail.run(**options)


def test_a_debounce_key_for_many_runs_is_refused() -> None:
    @task
    def mail(input: int) -> None: ...

    with pytest.raises(InvalidOption, match="names one run"):
        mail.run_many([1, 2], debounce_key="k")


def test_a_retry_is_a_new_run_with_its_own_handle() -> None:
    """T13."""
    answers = iter([ZeroDivisionError("no"), None])

    @task
    def flaky(input: int) -> int:
        if error := next(answers):
            raise error
        return input

    first = flaky.run(7)
    work_off("flaky")
    second = first.retry(actor="kim")
    with working("flaky"):
        assert second.wait(timeout=10) == 7
        third = retry_task(second.id)

    assert first.status() is TaskStatus.FAILED
    assert TaskRun.objects.get(id=second.id).origin_id == first.id
    assert TaskRun.objects.get(id=third.id).origin_id == second.id


def test_a_retry_wakes_a_sleeping_worker() -> None:
    @task
    def quick() -> int:
        return 1

    with working("quick", idle_poll_interval=timedelta(hours=1), poll_interval=timedelta(hours=1)):
        first = quick.run()
        until(lambda: first.status() is TaskStatus.COMPLETED)

        again = first.retry()

        until(lambda: again.status() is TaskStatus.COMPLETED)


async def test_a_live_run_and_an_unknown_one_cannot_be_retried() -> None:
    @task
    def mail() -> None: ...

    handle = await mail.arun()

    with pytest.raises(RunNotFinished):
        await handle.aretry()
    with pytest.raises(RunNotFound):
        await aretry_task(0)


@pytest.fixture
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "CHUNK", 10)


@pytest.mark.usefixtures("_small_chunks")
@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 25])
def test_many_runs_are_sent_in_several_statements_and_stay_in_order(count: int) -> None:
    """T13."""

    @task
    def mail(input: int) -> None: ...

    mail.run(0)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        handles = mail.run_many(iter(range(count)))

    inputs = dict(TaskRun.objects.values_list("id", "input"))
    assert [inputs[handle.id] for handle in handles] == list(range(count))
    assert sum("cb_run_task" in query["sql"] for query in queries) == -(-count // 10)


@pytest.mark.usefixtures("_small_chunks")
def test_of_many_runs_all_are_queued_or_none() -> None:
    @task
    def mail(input: int) -> None: ...

    with pytest.raises(PayloadError):
        mail.run_many([*range(25), "x"])

    assert not TaskRun.objects.exists()
