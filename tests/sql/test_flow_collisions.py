"""Flows under races: many at once on the same run, and sessions that die in the middle of a completion.

`RACE_ROUNDS=1000 python3 bootstrap.py test tests/sql/test_flow_collisions.py` runs the long version: 1 000 rounds, and
200 of those with 64 predecessors.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from signal import SIGKILL
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, connections

from catbird_django.engine import flow_cancel, steps, tick
from catbird_django.engine.call import blames_lock
from catbird_django.engine.tasks import Delivery
from catbird_django.errors import ReadinessOverflow
from catbird_django.models import Event, FlowRun, Readiness, StepInput, StepRun
from catbird_django.statuses import SettleVerdict, SignalVerdict
from tests.flow_support import claim, claim_all, complete, ended, plan, signal, start, statuses, when
from tests.sql.test_doctor import doctor
from tests.support import LEASE, USING, second_session, until

ROUNDS = int(os.environ.get("RACE_ROUNDS", "25"))
THREADS = 16
ERROR = json.dumps({"type": "ValueError", "message": "no", "traceback": ""})

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120 + 2 * ROUNDS)]


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Make calls at the same moment, on threads with connections of their own; give their answers, in order."""
    together = threading.Barrier(len(calls))

    def make(call: Callable[[], Any]) -> Any:
        try:
            connection.ensure_connection()
            together.wait(timeout=30)
            return call()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(timeout=60) for future in [pool.submit(make, call) for call in calls]]


def patiently(call: Callable[[], Any]) -> Any:
    """Make a call until nobody keeps the run locked for longer than it waits, as workers do."""
    while True:
        try:
            return call()
        except OperationalError as error:
            if not blames_lock(error):
                raise


def complete_one(delivery: Delivery, output: Any = 1) -> SettleVerdict:
    [verdict] = steps.complete_steps([(delivery, json.dumps(output))], notify=False, using=USING)
    return verdict


def complete_all(deliveries: list[Delivery]) -> list[SettleVerdict]:
    return steps.complete_steps([(one, "1") for one in deliveries], notify=False, using=USING)


@pytest.mark.parametrize("joins", [1, 2, 8])
def test_64_predecessors_that_finish_at_once_queue_each_join_once(joins: int):
    """F3, F4: no join is missed, none is queued twice, and nobody meets a deadlock."""
    before = [{"name": f"s{number}"} for number in range(64)]
    names = [step["name"] for step in before]
    shape = plan(f"joins_{joins}", *before, *({"name": f"join{number}", "needs": names} for number in range(joins)))
    for _ in range(max(2, ROUNDS // 5)):
        run = start(shape)
        deliveries = [one.delivery for one in claim_all(100)]
        random.Random(run.pk).shuffle(deliveries)
        shares = [sorted(deliveries[place::THREADS]) for place in range(THREADS)]

        at_once(*(lambda share=share: patiently(lambda: complete_all(share)) for share in shares))

        found = {name: status for name, status in statuses(run).items() if name.startswith("join")}
        assert found == {f"join{number}": "queued" for number in range(joins)}
        counts = Readiness.objects.filter(flow_run=run, required_count=64).values_list("completed_count", flat=True)
        assert list(counts) == [64] * joins
        assert StepInput.objects.filter(step_run__flow_run=run).count() == 64 * joins
        assert set(complete(**{f"join{number}": 1 for number in range(joins)})) == set(found)
        assert ended(run).status == "completed"


def test_a_signal_that_races_the_last_dependency_counts_or_is_late_and_the_step_is_decided_once():
    """F10a, F12: half of the time the condition skips the step, and then a signal that loses the race is late."""
    shape = plan(
        "racing_signal", {"name": "a"}, {"name": "b", "needs": ["a"], "signal": {}, **when("a gt 10")}, {"name": "c"}
    )
    for number in range(ROUNDS):
        run = start(shape)
        claims = {one.run_id: one for one in claim_all(10)}
        first = StepRun.objects.get(flow_run=run, step__name="a")
        is_met = number % 2 == 0

        verdict, settled = at_once(
            lambda run=run: signal(run, "b", {"ok": True}),
            lambda one=claims[first.pk], value=20 if is_met else 1: patiently(
                lambda: complete_one(one.delivery, value)
            ),
        )

        assert settled is SettleVerdict.COMPLETED
        if is_met:
            assert (verdict, statuses(run)["b"]) == (SignalVerdict.ACCEPTED, "queued")
        else:
            assert verdict in (SignalVerdict.ACCEPTED, SignalVerdict.LATE)
            assert statuses(run)["b"] == "skipped"
        finish(run)


def finish(run: FlowRun) -> None:
    """Cancel what is left, so that the next round claims nothing of this one."""
    flow_cancel.cancel_flows([run.pk], reason="over", actor="", notify=False, using=USING)
    for one in StepRun.objects.filter(flow_run=run, status="canceling"):
        steps.release_steps([(Delivery(one.pk, str(one.delivery_token)), None)], notify=False, using=USING)
    assert ended(run).status in ("canceled", "completed", "failed")


def settle_in_some_way(delivery: Delivery, way: int) -> SettleVerdict:
    calls: list[Callable[[], list[SettleVerdict]]] = [
        lambda: steps.complete_steps([(delivery, "1")], notify=False, using=USING),
        lambda: steps.fail_steps([(delivery, ERROR, None)], notify=False, using=USING),
        lambda: steps.release_steps([(delivery, None)], notify=False, using=USING),
        lambda: steps.skip_steps([(delivery, "why not")], notify=False, using=USING),
        lambda: flow_cancel.cancel_claimed_steps([(delivery, "enough")], notify=False, using=USING),
    ]
    [verdict] = patiently(calls[way % len(calls)])
    return verdict


def test_cancel_and_whatever_else_happens_leave_a_run_that_has_ended_and_nothing_alive():
    """F17, F18, R8: with a step in every state; canceled wins, or the other was first; never both."""
    shape = plan(
        "racing_cancel",
        {"name": "a"},
        {"name": "b"},
        {"name": "may_finish", "on_cancel": "finish"},
        {"name": "tried_again", "max_retries": 1},
        {"name": "signaled", "signal": {}},
        {"name": "delayed", "delay": 3600},
        {"name": "joined", "needs": ["a", "b"]},
    )
    for number in range(ROUNDS):
        run = start(shape)
        held = {name: one.delivery for name, one in claim().items()}
        steps.release_steps([(held["b"], None)], notify=False, using=USING)  # so one is queued, and claimed meanwhile
        steps.fail_steps([(held["tried_again"], ERROR, LEASE)], notify=False, using=USING)

        _, failed, finished, *_ = at_once(
            lambda run=run: flow_cancel.cancel_flows([run.pk], reason="", actor="", notify=False, using=USING),
            lambda one=held["a"], way=number: settle_in_some_way(one, way),
            lambda one=held["may_finish"]: patiently(lambda: complete_one(one)),
            lambda: claim(),
            lambda run=run: signal(run, "signaled", {"ok": True}),
            lambda: tick.tick(1, hold=LEASE, limit=100, cancel_grace=LEASE, using=USING),
        )

        finish(run)
        assert set(statuses(run).values()) <= {"completed", "failed", "skipped", "canceled"}
        assert ended(run).status in ("canceled", "failed")
        assert (run.status == "failed") == (failed is SettleVerdict.FAILED)
        assert (statuses(run)["may_finish"] == "completed") == (finished is SettleVerdict.COMPLETED)
    assert [str(finding) for finding in doctor() if finding.severity == "error"] == []


def test_a_count_that_would_overflow_undoes_the_completion():
    """F3: more requirements met than there are cannot be."""
    run = start(plan("overflow", {"name": "a"}, {"name": "b", "needs": ["a"]}))
    delivery = claim()["a"].delivery
    Readiness.objects.filter(flow_run=run, step__name="b").update(completed_count=1)

    with pytest.raises(ReadinessOverflow):
        complete_one(delivery)

    assert statuses(run)["a"] == "started"


TABLES = ["cb_flow_runs", "cb_step_runs", "cb_step_readiness", "cb_step_inputs", "cb_events", "cb_task_runs"]
DYING = (
    {"name": "a"},
    {"name": "b", "needs": ["a"], "optional": ["a"]},
    {"name": "c", "needs": ["a"], **when("a gt 10")},
    {"name": "d", "needs": ["c"]},
    {"name": "e", "needs": ["a"], "signal": {}},
)
AFTERWARDS = {"a": "completed", "b": "queued", "c": "skipped", "d": "skipped", "e": "waiting_for_signal"}


@pytest.mark.parametrize("table", TABLES[:5])
def test_a_session_that_dies_in_a_completion_has_done_nothing(table: str):
    """F4: at each table that a completion locks or writes it is made to wait, and its session is ended there."""
    run = start(plan("dying", *DYING))
    delivery = claim()["a"].delivery
    before = everything_about(run)

    with second_session() as session:
        session.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")  # who locks or writes rows of it waits
        thread, answers = complete_elsewhere(delivery)
        until(lambda: pids_that_wait(table) != [] or answers)
        terminate(pids_that_wait(table))
        thread.join(timeout=30)
        session.rollback()

    assert isinstance(answers[0], OperationalError)
    assert everything_about(run) == before
    assert complete_one(delivery) is SettleVerdict.COMPLETED
    assert statuses(run) == AFTERWARDS


def test_a_session_that_dies_between_any_two_statements_of_a_completion_has_done_nothing():
    """F4: pg_terminate_backend after each statement that writes."""
    run = start(plan("dying", *DYING))
    delivery = claim()["a"].delivery
    before = everything_about(run)

    with statements_that_wait() as boundary:
        while True:
            thread, answers = complete_elsewhere(delivery, stop_at=boundary.number)
            until(lambda: boundary.pids() != [] or answers)  # noqa: B023 - asked in this round
            if answers:
                break
            terminate(boundary.pids())
            thread.join(timeout=30)
            assert isinstance(answers[0], OperationalError)
            assert everything_about(run) == before
            boundary.number += 1

    assert boundary.number > 5
    assert (answers, statuses(run)) == ([SettleVerdict.COMPLETED], AFTERWARDS)


def test_a_worker_that_is_killed_between_any_two_statements_of_a_completion_has_completed_it_once():
    """F4: kill -9 after each statement that writes. The server does not notice, and finishes what it was told."""
    with statements_that_wait() as boundary:
        while True:
            run = start(plan("dying", *DYING))
            delivery = claim()["a"].delivery
            worker = complete_in_a_process(delivery, stop_at=boundary.number)
            until(lambda: boundary.pids() != [] or worker.poll() is not None)  # noqa: B023 - asked in this round
            if worker.poll() is not None:
                break
            [pid] = boundary.pids()
            worker.send_signal(SIGKILL)
            worker.wait(timeout=30)
            boundary.let_go()
            until(lambda: not is_connected(pid))  # noqa: B023 - asked in this round

            assert complete_one(delivery, 99) is SettleVerdict.STALE
            assert (statuses(run), StepRun.objects.get(flow_run=run, step__name="a").output) == (AFTERWARDS, 1)
            finish(run)
            boundary.hold()
            boundary.number += 1

    assert boundary.number > 5
    assert worker.returncode == 0
    assert [str(finding) for finding in doctor() if finding.severity == "error"] == []


def complete_elsewhere(delivery: Delivery, *, stop_at: int = 0) -> tuple[threading.Thread, list[Any]]:
    """Complete a step in a session of its own; what becomes of it is the only element of the list."""
    answers: list[Any] = []

    def complete() -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('test.stop_at', %s, false)", [str(stop_at)])
            answers.append(complete_one(delivery))
        except OperationalError as error:
            answers.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=complete)
    thread.start()
    return thread, answers


COMPLETION = """
import json, sys, psycopg
address, stop_at, run_id, token = json.loads(sys.argv[1])
with psycopg.connect(**address, autocommit=True) as session:
    session.execute("SELECT set_config('test.stop_at', %s, false)", [stop_at])
    completion = "SELECT * FROM cb_complete_steps(ARRAY[%s::bigint], ARRAY[%s::uuid], ARRAY['1'::jsonb])"
    session.execute(completion, [run_id, token])
"""


def complete_in_a_process(delivery: Delivery, *, stop_at: int) -> subprocess.Popen[bytes]:
    """Complete a step as a worker does, in one statement, by a process that can be killed."""
    parameters = connection.get_connection_params()
    names = ("dbname", "user", "password", "host", "port")
    address = {name: str(parameters[name]) for name in names if parameters.get(name)}
    what = json.dumps([address, str(stop_at), delivery.run_id, delivery.delivery_token])
    return subprocess.Popen([sys.executable, "-c", COMPLETION, what])


class Boundary:
    """Where sessions that want to stop at some statement do stop, until they are let go."""

    KEY = 4712

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self.number = 1
        self._session = session

    def hold(self) -> None:
        self._session.execute("SELECT pg_advisory_lock(%s)", [self.KEY])

    def let_go(self) -> None:
        self._session.execute("SELECT pg_advisory_unlock_all()")

    def pids(self) -> list[int]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted", [self.KEY]
            )
            return [pid for (pid,) in cursor.fetchall()]


@contextmanager
def statements_that_wait() -> Iterator[Boundary]:
    """Let a session that has set `test.stop_at` wait after so many statements of its transaction that write."""
    with connection.cursor() as cursor, second_session() as session:
        session.autocommit = True
        boundary = Boundary(session)
        boundary.hold()
        cursor.execute(f"""
            CREATE FUNCTION test_boundary() RETURNS trigger LANGUAGE plpgsql AS $$
            DECLARE
                v_passed integer := coalesce(nullif(current_setting('test.passed', true), ''), '0')::integer + 1;
            BEGIN
                PERFORM set_config('test.passed', v_passed::text, true);
                IF v_passed::text = current_setting('test.stop_at', true) THEN
                    PERFORM set_config('lock_timeout', '0', true);
                    PERFORM pg_advisory_xact_lock_shared({Boundary.KEY});
                END IF;
                RETURN NULL;
            END
            $$""")
        for table in TABLES:
            cursor.execute(
                f"CREATE TRIGGER test_boundary AFTER INSERT OR UPDATE OR DELETE ON {table}"
                " FOR EACH STATEMENT EXECUTE FUNCTION test_boundary()"
            )
        try:
            yield boundary
        finally:
            boundary.let_go()
            cursor.execute("DROP FUNCTION test_boundary() CASCADE")


def terminate(pids: list[int]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::integer[]) AS pid", [pids])


def is_connected(pid: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", [pid])
        return bool(cursor.fetchone()[0])


def pids_that_wait(table: str) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_locks WHERE relation = to_regclass(%s) AND NOT granted AND pid <> pg_backend_pid()",
            [table],
        )
        return [pid for (pid,) in cursor.fetchall()]


def everything_about(run: FlowRun) -> list[Any]:
    """Every row that belongs to a run."""
    return [
        list(FlowRun.objects.filter(pk=run.pk).values()),
        list(StepRun.objects.filter(flow_run=run).order_by("pk").values()),
        list(Readiness.objects.filter(flow_run=run).order_by("pk").values()),
        list(StepInput.objects.filter(step_run__flow_run=run).order_by("pk").values()),
        list(Event.objects.order_by("pk").values()),
    ]
