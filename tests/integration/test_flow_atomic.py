"""Atomic steps: what a handler writes is committed with its completion, or not at all (F22)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from catbird_django import Cancel, Flow, FlowFailed, RunCanceled, Skip, Snooze, StepContext, complete_early
from catbird_django.models import FlowRun, Item, StepRun
from tests.support import second_session, until, work_off, working

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _ledger() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE ledger (entry integer)")
        cursor.execute(
            "ALTER TABLE ledger ADD CONSTRAINT once UNIQUE (entry) DEFERRABLE INITIALLY DEFERRED, "
            "ADD CONSTRAINT positive CHECK (entry > -100)"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE ledger")


def enter(entry: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO ledger VALUES (%s)", [entry])


def entries() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT entry FROM ledger ORDER BY entry")
        return [entry for (entry,) in cursor.fetchall()]


def execute(statement: str, *arguments: Any) -> None:
    """Execute something in another session, and commit."""
    with second_session() as session:
        session.execute(statement, arguments)
        session.commit()


def step_run(run_id: int, name: str = "write") -> StepRun:
    return StepRun.objects.get(flow_run_id=run_id, step__name=name)


def writing(then: Callable[[int], Any] = lambda entry: entry, **options: Any) -> Flow[Any, Any]:
    """A flow whose only step enters its input, and then does something."""
    flow = Flow("ledger", input=int)

    @flow.step(atomic=True, **options)
    def write(input: int) -> int:
        enter(input)
        return then(input)  # type: ignore[no-any-return] # as tests want it

    return flow


def failing(error: BaseException) -> Callable[[int], Any]:
    def fail(input: int) -> Any:
        raise error

    return fail


def test_what_a_step_writes_is_there_once_it_has_completed() -> None:
    flow = writing()
    runs = [flow.run(number) for number in range(20)]
    work_off(concurrency=4)

    assert [run.wait(timeout=5) for run in runs] == list(range(20))
    assert entries() == list(range(20))


def test_the_handler_and_its_completion_share_a_transaction() -> None:
    flow = Flow("ledger")
    seen: list[tuple[bool, str]] = []

    @flow.step(atomic=True)
    def write(ctx: StepContext) -> None:
        with second_session() as session:
            seen.append((connection.in_atomic_block, step_run(ctx.run_id).status))
            # Nobody has locked the run: its lease can be renewed.
            session.execute("SET lock_timeout = '1s'")
            session.execute("SELECT FROM cb_step_runs FOR UPDATE NOWAIT")

    run = flow.run()
    work_off()

    assert run.wait(timeout=5) is None
    assert seen == [(True, "started")]


def test_a_step_that_fails_leaves_nothing_of_each_attempt() -> None:
    tries: list[int] = []

    def third_time(input: int) -> int:
        tries.append(input)
        if len(tries) < 3:
            raise ValueError("not yet")
        return input

    flow = writing(third_time, max_retries=2, backoff=(0, 0))
    run = flow.run(7)
    with working():
        assert run.wait(timeout=10) == 7

    assert (entries(), len(tries), step_run(run.id).failure_count) == ([7], 3, 2)


def test_items_of_a_map_may_be_atomic() -> None:
    flow = Flow("ledger", input=list[int])

    @flow.map(over="input", atomic=True, on_item_failure="collect")
    def write(item: int) -> int:
        enter(item)
        if item % 2:
            raise ValueError("odd")
        return item

    run = flow.run(list(range(6)))
    work_off()
    run.wait(timeout=5)

    assert entries() == [0, 2, 4]
    assert [item.status for item in Item.objects.order_by("index")] == ["completed", "failed"] * 3


def test_what_was_written_under_a_claim_that_is_lost_is_undone() -> None:
    """Whoever has the claim now does it, once."""
    tries: list[int] = []

    def lose_the_claim(input: int) -> int:
        tries.append(input)
        if len(tries) == 1:
            execute("UPDATE cb_step_runs SET delivery_token = gen_random_uuid(), lease_until = now() - interval '1 s'")
        return input + len(tries)

    flow = writing(lose_the_claim, max_lost=5)
    run = flow.run(1)
    with working(sweep_interval=timedelta(seconds=0.3)):
        until(lambda: tries)
        assert run.wait(timeout=20) == 3

    assert entries() == [1]
    assert (step_run(run.id).lost_count, step_run(run.id).failure_count) == (1, 0)


def test_a_worker_lets_go_of_what_it_has_settled_with_the_work() -> None:
    flow = writing()

    with working(concurrency=2) as worker:
        for number in range(10):
            assert flow.run(number).wait(timeout=10) == number
        until(lambda: not worker._leases.held)
        assert worker._settled_count == 10


def test_a_commit_that_is_refused_is_a_failed_attempt() -> None:
    flow = Flow("ledger", input=int)

    @flow.step(atomic=True)
    def write(input: int) -> int:
        enter(input)
        enter(input)  # is looked at when it is committed
        return input

    run = flow.run(3)
    work_off()

    with pytest.raises(FlowFailed, match="unique constraint"):
        run.wait(timeout=5)
    assert (entries(), step_run(run.id).failure_count) == ([], 1)


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
@pytest.mark.parametrize("when", ["within", "at commit"])
def test_a_conflict_with_others_is_no_failure(sqlstate: str, when: str) -> None:
    tries: list[int] = []
    deferred = "DEFERRABLE INITIALLY DEFERRED" if when == "at commit" else ""
    execute(
        f"CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ "
        f"BEGIN IF nextval('attempts') = 1 THEN RAISE 'conflict' USING ERRCODE = '{sqlstate}'; END IF; "
        f"RETURN NULL; END $$"
    )
    execute("CREATE SEQUENCE attempts")
    kind = "CONSTRAINT TRIGGER" if deferred else "TRIGGER"
    execute(f"CREATE {kind} conflict AFTER INSERT ON ledger {deferred} FOR EACH ROW EXECUTE FUNCTION conflict()")
    try:
        run = writing(lambda entry: tries.append(entry) or entry).run(5)
        work_off()
        assert run.wait(timeout=5) == 5
    finally:
        execute("DROP TRIGGER conflict ON ledger")
        execute("DROP FUNCTION conflict")
        execute("DROP SEQUENCE attempts")

    assert entries() == [5]
    assert (step_run(run.id).failure_count, step_run(run.id).delivery_count) == (0, 2)


def test_a_step_whose_run_somebody_keeps_locked_is_done_again() -> None:
    tries: list[int] = []
    is_locked = threading.Event()

    def note(entry: int) -> int:
        tries.append(entry)
        assert is_locked.wait(10)
        return entry

    flow = writing(note)
    with working() as worker, second_session() as session:
        run = flow.run(6)
        until(lambda: tries)
        session.execute("SELECT FROM cb_flow_runs FOR UPDATE")
        is_locked.set()
        until(lambda: worker._settlement.set_aside)  # the work is undone, and to be given back
        session.rollback()
        assert run.wait(timeout=15) == 6

    assert (entries(), tries) == ([6], [6, 6])
    assert step_run(run.id).failure_count == 0


def test_a_step_whose_connection_breaks_before_it_is_settled_is_done_again() -> None:
    """The handler has done nothing wrong, and nothing has happened."""
    tries: list[int] = []

    def lose_the_connection(entry: int) -> int:
        tries.append(entry)
        if len(tries) == 1:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                execute("SELECT pg_terminate_backend(%s)", cursor.fetchone()[0])
        return entry

    flow = writing(lose_the_connection)
    with working():
        run = flow.run(6)
        assert run.wait(timeout=15) == 6

    assert (entries(), tries, step_run(run.id).failure_count) == ([6], [6, 6], 0)


def test_a_connection_that_breaks_at_the_commit_is_a_failed_attempt_if_nothing_was_committed() -> None:
    execute(
        "CREATE FUNCTION break_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF nextval('attempts') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL; END $$"
    )
    execute("CREATE SEQUENCE attempts")
    execute(
        "CREATE CONSTRAINT TRIGGER break_once AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION break_once()"
    )
    flow = writing(max_retries=1, backoff=(0, 0))
    try:
        with working():
            run = flow.run(6)
            assert run.wait(timeout=15) == 6
    finally:
        execute("DROP TRIGGER break_once ON ledger")
        execute("DROP FUNCTION break_once")
        execute("DROP SEQUENCE attempts")

    assert (entries(), step_run(run.id).failure_count) == ([6], 1)


@pytest.mark.parametrize("error", [ValueError("no"), DatabaseError("no"), SystemExit(3)])
def test_whatever_a_handler_raises_undoes_what_it_wrote(error: BaseException) -> None:
    run = writing(failing(error)).run(1)
    work_off()

    with pytest.raises(FlowFailed):
        run.wait(timeout=5)
    assert entries() == []


def test_a_step_that_skips_itself_leaves_nothing() -> None:
    run = writing(failing(Skip("no need")), may_skip=True).run(1)
    work_off()

    assert run.wait(timeout=5) is None
    assert (entries(), step_run(run.id).status) == ([], "skipped")


def test_a_step_that_cancels_the_run_leaves_nothing() -> None:
    run = writing(failing(Cancel("no"))).run(1)
    work_off()

    with pytest.raises(RunCanceled):
        run.wait(timeout=5)
    assert entries() == []


def test_a_step_that_snoozes_leaves_nothing_until_it_is_done() -> None:
    tries: list[int] = []

    def later(input: int) -> int:
        tries.append(input)
        if len(tries) == 1:
            raise Snooze(0)
        return input

    run = writing(later).run(1)
    with working():
        assert run.wait(timeout=10) == 1

    assert (entries(), len(tries)) == ([1], 2)


def test_a_step_that_ends_the_flow_early_keeps_what_it_wrote() -> None:
    """F16."""
    run = writing(lambda entry: complete_early(entry * 10, "enough")).run(4)
    work_off()

    assert run.wait(timeout=5) == 40
    assert (entries(), FlowRun.objects.get(id=run.id).early_reason) == ([4], "enough")


def test_an_early_end_with_a_wrong_output_keeps_nothing() -> None:
    run = writing(lambda _: complete_early("forty")).run(4)
    work_off()

    with pytest.raises(FlowFailed, match="output of the flow"):
        run.wait(timeout=5)
    assert entries() == []


def test_of_a_run_that_was_canceled_meanwhile_nothing_is_kept() -> None:
    """F17: the cancel was there first."""
    began, canceled = threading.Event(), threading.Event()

    def wait_for_it(input: int) -> int:
        began.set()
        assert canceled.wait(10)
        return input

    flow = writing(wait_for_it)
    with working():
        run = flow.run(1)
        assert began.wait(10)
        run.cancel()
        canceled.set()
        until(lambda: run.status() == "canceled")

    assert (entries(), step_run(run.id).status) == ([], "canceled")


def swallow(input: int) -> int:
    try:
        enter(-100)
    except DatabaseError:
        return input
    raise AssertionError("it was taken")


def ask_for_rollback(input: int) -> int:
    transaction.set_rollback(True)
    return input


def close(input: int) -> int:
    connection.close()
    return input


@pytest.mark.parametrize("breaking", [swallow, ask_for_rollback, close])
def test_a_handler_that_has_broken_its_transaction_fails(breaking: Callable[[int], int]) -> None:
    flow = writing(breaking)
    run = flow.run(1)
    work_off()

    with pytest.raises(FlowFailed):
        run.wait(timeout=5)
    assert entries() == []


def test_an_error_that_a_handler_catches_in_a_block_of_its_own_breaks_nothing() -> None:
    def careful(input: int) -> int:
        try:
            with transaction.atomic():
                enter(-100)
        except DatabaseError:
            return input
        raise AssertionError("it was taken")

    run = writing(careful).run(8)
    work_off()

    assert (run.wait(timeout=5), entries()) == (8, [8])


def test_a_step_that_takes_too_long_leaves_nothing_and_its_connection_is_not_used_again() -> None:
    """T8."""

    def slow(input: int) -> int:
        if input == 1:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(20)")
        return input

    flow = writing(slow, timeout=0.3)
    late, other = flow.run(1), flow.run(2)
    work_off(concurrency=1)

    with pytest.raises(FlowFailed, match="took longer than"):
        late.wait(timeout=5)
    assert other.wait(timeout=5) == 2
    assert entries() == [2]


def test_an_output_that_does_not_fit_undoes_the_work() -> None:
    run = writing(lambda _: "four").run(1)
    work_off()

    with pytest.raises(FlowFailed, match="valid integer"):
        run.wait(timeout=5)
    assert entries() == []


def test_an_inline_step_that_raises_after_an_atomic_one_is_queued_and_the_work_stays() -> None:
    """F6."""
    flow = writing()
    tries: list[int] = []

    @flow.step(inline=True)
    def after(write: int) -> int:
        tries.append(write)
        if len(tries) == 1:
            raise ValueError("not yet")
        return write + 1

    run = flow.run(1)
    work_off()

    assert (run.wait(timeout=5), entries(), len(tries)) == (2, [1], 2)
