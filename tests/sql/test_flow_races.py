"""Flows under races: many at once on the same run, and sessions that die in the middle of a completion.

`RACE_ROUNDS=1000 python3 bootstrap.py test tests/sql/test_flow_races.py` runs the long version.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import OperationalError, connection, connections

from catbird_django.engine import flow_cancel, steps
from catbird_django.engine.tasks import Delivery
from catbird_django.errors import ReadinessOverflow
from catbird_django.models import Event, FlowRun, Readiness, StepInput, StepRun
from catbird_django.statuses import SettleVerdict, SignalVerdict
from tests.flow_support import claim, claim_all, complete, ended, plan, signal, start, statuses, when
from tests.support import USING, second_session, until

ROUNDS = int(os.environ.get("RACE_ROUNDS", "25"))
THREADS = 16

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


def complete_one(delivery: Delivery, output: Any = 1) -> SettleVerdict:
    [verdict] = steps.complete_steps([(delivery, json.dumps(output))], notify=False, using=USING)
    return verdict


@pytest.mark.parametrize("joins", [1, 2, 8])
def test_64_predecessors_that_finish_at_once_queue_each_join_once(joins: int):
    """F3, F4: no join is missed, none is queued twice, and nobody meets a deadlock."""
    before = [{"name": f"s{number}"} for number in range(64)]
    names = [step["name"] for step in before]
    shape = plan(f"joins_{joins}", *before, *({"name": f"join{number}", "needs": names} for number in range(joins)))
    for _ in range(max(2, ROUNDS // 10)):
        run = start(shape)
        deliveries = [one.delivery for one in claim_all(100)]
        random.Random(run.pk).shuffle(deliveries)
        shares = [sorted(deliveries[place::THREADS]) for place in range(THREADS)]

        at_once(
            *(
                lambda share=share: steps.complete_steps([(one, "1") for one in share], notify=False, using=USING)
                for share in shares
            )
        )

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
            lambda one=claims[first.pk], value=20 if is_met else 1: complete_one(one.delivery, value),
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
    error = json.dumps({"type": "ValueError", "message": "no", "traceback": ""})
    calls: list[Callable[[], list[SettleVerdict]]] = [
        lambda: steps.complete_steps([(delivery, "1")], notify=False, using=USING),
        lambda: steps.fail_steps([(delivery, error, None)], notify=False, using=USING),
        lambda: steps.release_steps([(delivery, None)], notify=False, using=USING),
        lambda: steps.skip_steps([(delivery, "why not")], notify=False, using=USING),
        lambda: flow_cancel.cancel_claimed_steps([(delivery, "enough")], notify=False, using=USING),
    ]
    [verdict] = calls[way % len(calls)]()
    return verdict


def test_cancel_and_whatever_a_step_reports_leave_a_run_that_has_ended_and_nothing_alive():
    """F17, F18, R8: canceled wins, or the other was first; never both."""
    shape = plan("racing_cancel", {"name": "a"}, {"name": "b"}, {"name": "c", "needs": ["a", "b"]})
    for number in range(ROUNDS):
        run = start(shape)
        held = claim_all(10)

        _, *settled = at_once(
            lambda run=run: flow_cancel.cancel_flows([run.pk], reason="", actor="", notify=False, using=USING),
            *(
                lambda one=one, way=number + place: settle_in_some_way(one.delivery, way)
                for place, one in enumerate(held)
            ),
        )

        finish(run)
        assert set(statuses(run).values()) <= {"completed", "failed", "skipped", "canceled"}
        assert ended(run).status in ("canceled", "failed")
        assert (run.status == "failed") == (SettleVerdict.FAILED in settled)


def test_a_count_that_would_overflow_undoes_the_completion():
    """F3: more requirements met than there are cannot be."""
    run = start(plan("overflow", {"name": "a"}, {"name": "b", "needs": ["a"]}))
    delivery = claim()["a"].delivery
    Readiness.objects.filter(flow_run=run, step__name="b").update(completed_count=1)

    with pytest.raises(ReadinessOverflow):
        complete_one(delivery)

    assert statuses(run)["a"] == "started"


BOUNDARIES = ["cb_flow_runs", "cb_step_runs", "cb_step_readiness", "cb_step_inputs", "cb_events"]


@pytest.mark.parametrize("table", BOUNDARIES)
def test_a_session_that_dies_in_a_completion_has_done_nothing(table: str):
    """F4: at each table that a completion writes it is made to wait, and its session is ended there."""
    run = start(
        plan(
            "dying",
            {"name": "a"},
            {"name": "b", "needs": ["a"], "optional": ["a"]},
            {"name": "c", "needs": ["a"], **when("a gt 10")},
        )
    )
    delivery = claim()["a"].delivery
    before = everything_about(run)
    answers: list[Any] = []

    def complete_and_die() -> None:
        try:
            answers.append(complete_one(delivery))
        except OperationalError as error:
            answers.append(error)
        finally:
            connections.close_all()

    with second_session() as session:
        session.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")  # who locks or writes rows of it waits
        thread = threading.Thread(target=complete_and_die)
        thread.start()
        until(lambda: pids_that_wait(table) != [])
        [pid] = pids_that_wait(table)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
        thread.join(timeout=30)
        session.rollback()

    assert isinstance(answers[0], OperationalError)
    assert everything_about(run) == before
    assert complete_one(delivery) is SettleVerdict.COMPLETED
    assert statuses(run) == {"a": "completed", "b": "queued", "c": "skipped"}


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
