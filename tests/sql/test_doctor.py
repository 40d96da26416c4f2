"""`cb_doctor`: each check finds what it is for, and none finds anything in a healthy database (W10)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from catbird_django.engine import tasks
from catbird_django.engine.doctor import Finding, examine
from catbird_django.models import Breaker, Event, RunLog, RunTag, Task, TaskRun, Worker
from tests.factories import TaskFactory, TaskRunFactory, WorkerFactory
from tests.support import USING, claim, queue_runs, register, register_worker, second_session

# Of the server that the tests run on, not of what they do: it trades safety for speed.
OF_THE_SERVER = {"unsafe_setting", "old_transaction", "dead_rows"}


def doctor(**options: object) -> list[Finding]:
    given = {"lease": 30, "sweep": 5, "worker_ttl": 300, "patience": 60, **options}
    is_notifying = bool(given.pop("is_notifying", True))
    durations = {name: timedelta(seconds=float(str(value))) for name, value in given.items()}
    found = examine(**durations, is_notifying=is_notifying, using=USING)
    return [finding for finding in found if finding.check_id not in OF_THE_SERVER]


def found_of(check_id: str) -> list[Finding]:
    return [finding for finding in doctor() if finding.check_id == check_id]


def execute(statement: str, *arguments: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments or None)


@pytest.fixture
def _anything_goes() -> None:
    """Drop what forbids the corruption; the test's transaction brings it back."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT conname FROM pg_constraint WHERE conrelid = 'cb_task_runs'::regclass AND contype = 'c'")
        for (name,) in cursor.fetchall():
            cursor.execute(f'ALTER TABLE cb_task_runs DROP CONSTRAINT "{name}"')


def an_hour_ago() -> object:
    return timezone.now() - timedelta(hours=1)


def lease_of_an_ended_run() -> None:
    TaskRunFactory(completed=True, lease_until=timezone.now())


def claim_without_a_lease() -> None:
    TaskRunFactory(started=True, lease_until=None)


def queued_with_a_lease() -> None:
    TaskRunFactory(lease_until=timezone.now(), delivery_count=1)


def lease_of_long_ago() -> None:
    TaskRunFactory(started=True, lease_until=an_hour_ago())


def lease_for_a_day_of_a_worker_that_is_gone() -> None:
    gone = WorkerFactory(silent=True)
    TaskRunFactory(started=True, worker=gone, lease_until=timezone.now() + timedelta(days=1))


def failure_without_an_error() -> None:
    TaskRunFactory(failed=True, error=None)


def end_before_the_start() -> None:
    TaskRunFactory(completed=True, finished_at=an_hour_ago())


def end_without_a_time() -> None:
    TaskRunFactory(completed=True, finished_at=None)


def more_failures_than_deliveries() -> None:
    TaskRunFactory(failed=True, failure_count=2, delivery_count=1)


def more_failures_than_the_task_allows() -> None:
    task = TaskFactory(max_retries=1, registered_at=an_hour_ago())
    TaskRunFactory(task=task, failed=True, failure_count=3, delivery_count=3)


def run_of_nothing() -> None:
    run = TaskRunFactory(completed=True)
    Task.objects.filter(id=run.task_id).delete()


@pytest.mark.usefixtures("_anything_goes")
@pytest.mark.parametrize(
    ("check_id", "corrupt"),
    [
        ("ended_but_held", lease_of_an_ended_run),
        ("held_without_lease", claim_without_a_lease),
        ("queued_but_held", queued_with_a_lease),
        ("lease_ran_out", lease_of_long_ago),
        ("lease_too_long", lease_for_a_day_of_a_worker_that_is_gone),
        ("ended_wrong", failure_without_an_error),
        ("ended_wrong", end_before_the_start),
        ("ended_wrong", end_without_a_time),
        ("counts_wrong", more_failures_than_deliveries),
        ("counts_wrong", more_failures_than_the_task_allows),
        ("unknown_task", run_of_nothing),
    ],
)
def test_a_run_that_cannot_be_is_found(check_id: str, corrupt: Callable[[], None]) -> None:
    """Invariants 3, 4, 13 and 15, and S28."""
    corrupt()

    [finding] = found_of(check_id)
    assert (finding.severity, finding.run_kind, finding.run_id) == ("error", "task", TaskRun.objects.get().id)
    assert finding.message
    assert finding.advice


def test_a_task_that_allows_less_since_then_is_no_reason_to_complain() -> None:
    task = TaskFactory(max_retries=0, registered_at=timezone.now())
    TaskRunFactory(task=task, failed=True, failure_count=3, delivery_count=3, queued_at=an_hour_ago())

    assert found_of("counts_wrong") == []


def tell(run: TaskRun, *changes: tuple[str, str, str], token: object = None, actor: str = "worker") -> None:
    """Write the history of a run: (event, from, to)."""
    for event, before, after in changes:
        Event.objects.create(
            at=timezone.now(),
            run_kind="task",
            run_id=run.id,
            event=event,
            from_status=before,
            to_status=after,
            delivery_token=token,
            actor=actor,
        )


BIRTH = ("queued", "", "queued")
CLAIM = ("claimed", "queued", "started")
COMPLETION = ("completed", "started", "completed")
RELEASE = ("released", "started", "queued")


def test_a_history_as_it_should_be_is_no_finding() -> None:
    run = TaskRunFactory(completed=True, delivery_count=2)
    tell(run, BIRTH, actor="client")
    tell(run, CLAIM, RELEASE, token=uuid4())
    tell(run, CLAIM, COMPLETION, token=uuid4())

    assert doctor() == []


def test_two_completions_and_what_follows_an_end_are_found() -> None:
    """Invariants 5 and 6."""
    run = TaskRunFactory(completed=True)
    tell(run, BIRTH, CLAIM, COMPLETION, COMPLETION, token=uuid4())

    assert [finding.run_id for finding in found_of("completed_twice")] == [run.id]
    assert [finding.run_id for finding in found_of("left_its_end")] == [run.id]


def test_a_token_that_was_used_twice_is_found() -> None:
    run = TaskRunFactory(completed=True, delivery_count=2)
    tell(run, BIRTH, CLAIM, RELEASE, CLAIM, COMPLETION, token=uuid4())

    assert [finding.run_id for finding in found_of("token_used_twice")] == [run.id]


def test_a_settlement_by_another_claim_than_the_current_one_is_found() -> None:
    run = TaskRunFactory(completed=True)
    tell(run, BIRTH, CLAIM, token=uuid4())
    tell(run, COMPLETION, token=uuid4())

    assert [finding.run_id for finding in found_of("settled_by_stranger")] == [run.id]


def test_deliveries_that_are_not_the_claims_are_found() -> None:
    """Invariant 15."""
    run = TaskRunFactory(completed=True, delivery_count=3)
    tell(run, BIRTH, CLAIM, COMPLETION, token=uuid4())

    assert [finding.run_id for finding in found_of("deliveries_wrong")] == [run.id]


def test_a_history_that_does_not_begin_with_the_birth_is_not_judged() -> None:
    """EVENTS = "notable" writes a part only."""
    run = TaskRunFactory(completed=True, delivery_count=3)
    tell(run, CLAIM, COMPLETION, COMPLETION, token=uuid4())

    assert doctor() == []


@pytest.mark.parametrize(
    ("constraint", "column", "status"),
    [
        ("cb_task_runs_one_live_per_key", "concurrency_key", "queued"),
        ("cb_task_runs_one_effective_per_key", "idempotency_key", "completed"),
        ("cb_task_runs_one_queued_per_key", "debounce_key", "queued"),
    ],
)
def test_a_key_that_two_runs_have_is_found(constraint: str, column: str, status: str) -> None:
    """Invariant 10."""
    execute(f"DROP INDEX {constraint}")
    task = TaskFactory()
    runs = [TaskRunFactory(task=task, **{status: True} if status == "completed" else {}) for _ in range(2)]
    TaskRun.objects.update(**{column: "order 7"})

    [finding] = found_of("key_taken_twice")
    assert finding.run_id == runs[0].id


def test_what_is_left_of_a_run_that_is_gone_is_found() -> None:
    """Invariant 13."""
    gone = {"run_kind": "task", "run_id": 10**15}
    Event.objects.create(at=timezone.now(), event="failed", **gone)
    RunLog.objects.create(at=timezone.now(), attempt=1, level="info", message="here", **gone)
    RunTag.objects.create(tag="blue", **gone)
    Breaker.objects.create(task_id=10**15)

    subjects = {finding.subject.split()[0] for finding in found_of("orphan")}

    assert subjects == {"cb_events", "cb_run_logs", "cb_run_tags", "cb_breakers"}


def test_due_work_that_an_idle_worker_leaves_alone_is_found() -> None:
    """Invariant 14."""
    task = TaskFactory(name="steep")
    WorkerFactory(sleeping=True, handlers=["steep"], started_at=an_hour_ago())
    forgotten = TaskRunFactory(task=task, queued_at=an_hour_ago())
    TaskRunFactory(task=task)

    [finding] = found_of("due_beside_idle_worker")
    assert finding.run_id == forgotten.id


@pytest.mark.parametrize("reason", ["busy", "draining", "another queue", "without the handler", "an open breaker"])
def test_due_work_may_wait_when_there_is_a_reason(reason: str) -> None:
    task = TaskFactory(name="steep")
    worker = WorkerFactory(handlers=["steep"], started_at=an_hour_ago())
    TaskRunFactory(task=task, queued_at=an_hour_ago())
    match reason:
        case "busy":
            TaskRunFactory(task=task, started=True, worker=worker)
        case "draining":
            Worker.objects.update(draining_since=timezone.now())
        case "another queue":
            Worker.objects.update(queues=["elsewhere"])
        case "without the handler":
            Worker.objects.update(handlers=["greet"])
        case "an open breaker":
            Breaker.objects.create(task=task, open_until=timezone.now() + timedelta(minutes=1))

    assert found_of("due_beside_idle_worker") == []


def test_due_work_that_no_worker_can_run_is_a_warning() -> None:
    TaskRunFactory(task__name="steep")
    WorkerFactory(handlers=["greet"], sleeping=True)

    [finding] = found_of("nobody_runs_it")
    assert (finding.severity, finding.subject) == ("warning", "steep")


def test_a_worker_that_is_not_reached_by_notifications_is_a_warning() -> None:
    WorkerFactory(started_at=an_hour_ago())
    WorkerFactory(started_at=an_hour_ago(), is_listening=True)

    assert len(found_of("polls_only")) == 1
    assert doctor(is_notifying=False) == []


def test_an_old_transaction_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """H01."""
    execute(
        "CREATE OR REPLACE FUNCTION _cb_now() RETURNS timestamptz LANGUAGE sql STABLE"
        " AS $$ SELECT pg_catalog.statement_timestamp() + interval '2 minutes' $$"
    )
    with second_session() as other:
        pid = other.execute("SELECT pg_backend_pid()").fetchone()[0]
        found = examine(
            lease=timedelta(seconds=30),
            sweep=timedelta(seconds=5),
            worker_ttl=timedelta(minutes=5),
            patience=timedelta(minutes=1),
            is_notifying=True,
            using=USING,
        )

    assert f"session {pid}" in {finding.subject for finding in found if finding.check_id == "old_transaction"}


def test_an_unlogged_table_is_a_warning() -> None:
    """H01."""
    execute("ALTER TABLE cb_run_tags SET UNLOGGED")

    assert [finding.subject for finding in found_of("unlogged_table")] == ["cb_run_tags"]


def test_an_invalid_index_is_an_error() -> None:
    execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'cb_run_tags_found'::regclass")

    assert [finding.subject for finding in found_of("invalid_index")] == ["cb_run_tags_found"]


def test_settings_that_lose_committed_work_are_a_warning() -> None:
    execute("SET LOCAL synchronous_commit = off")

    found = examine(
        lease=timedelta(seconds=30),
        sweep=timedelta(seconds=5),
        worker_ttl=timedelta(minutes=5),
        patience=timedelta(minutes=1),
        is_notifying=True,
        using=USING,
    )

    assert "synchronous_commit" in {finding.subject for finding in found if finding.check_id == "unsafe_setting"}


def test_a_role_that_may_not_vacuum_is_told_so() -> None:
    """W9."""
    role = f"r{uuid4().hex[:12]}"
    execute(f"CREATE ROLE {role}")
    execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    execute(f"SET LOCAL ROLE {role}")

    found = found_of("vacuum_not_permitted")
    execute("RESET ROLE")

    assert [finding.subject for finding in found] == ["cb_items", "cb_step_readiness", "cb_step_runs", "cb_task_runs"]


def test_a_busy_healthy_database_has_no_findings() -> None:
    """Runs in every state, made by our own functions and by factories, with a worker that is alive."""
    [steep_id] = register("steep")
    worker_id = register_worker()
    Worker.objects.update(handlers=["steep"], is_listening=True, started_at=an_hour_ago())
    steep, worker = Task.objects.get(id=steep_id), Worker.objects.get()
    queue_runs("steep", 30)
    queue_runs("steep", 5, delay=timedelta(hours=1))
    held = claim((steep_id, 0), worker_id=worker_id, limit=20)
    tasks.complete_tasks([(claimed.delivery, "1") for claimed in held[:8]], notify=False, using=USING)
    error = '{"type": "E", "message": ""}'
    tasks.fail_tasks([(claimed.delivery, error, None) for claimed in held[8:12]], notify=False, using=USING)
    tasks.release_tasks([(claimed.delivery, None) for claimed in held[12:15]], notify=False, using=USING)
    for state in ("canceling", "skipped", "canceled", "expired"):
        TaskRunFactory(task=steep, **{state: True}, **({"worker": worker} if state == "canceling" else {}))

    assert doctor() == []


def test_findings_of_one_check_are_bounded() -> None:
    for _ in range(3):
        TaskRunFactory(started=True, lease_until=an_hour_ago())

    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM cb_doctor(p_limit => 2) WHERE check_id = 'lease_ran_out'")
        assert cursor.fetchone() == (2,)


def test_a_hundred_thousand_runs_are_examined_in_a_few_seconds() -> None:
    """W10: the runs are read a few times, not once per check."""
    TaskFactory(name="steep")
    execute("TRUNCATE cb_task_runs, cb_events")  # files of their own until the rollback, which leaves no dead rows
    execute(
        "INSERT INTO cb_task_runs (task_id, queue, status, input, output, delivery_count, queued_at, started_at,"
        " finished_at) SELECT task.id, 'default', 'completed', '1', '1', 1, now(), now(), now()"
        " FROM cb_tasks AS task, generate_series(1, 100000) WHERE task.name = 'steep'"
    )
    execute(
        "INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status)"
        " SELECT now(), 'task', run.id, told.event, told.before, told.after FROM cb_task_runs AS run CROSS JOIN (VALUES"
        " ('queued', '', 'queued'), ('claimed', 'queued', 'started'), ('completed', 'started', 'completed')"
        ") AS told (event, before, after)"
    )
    execute("ANALYZE cb_task_runs, cb_events")

    started = time.monotonic()
    found = doctor()
    taken = time.monotonic() - started

    assert {finding.check_id for finding in found} <= {"token_used_twice"}  # the events above have no tokens
    assert taken < 15, taken  # about 1 s on a quiet machine
