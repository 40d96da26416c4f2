"""What the tick does for flows: deadlines, expiry, and cancels that nobody answers (F17, F18, F20)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.db.models.functions import Now
from django.utils import timezone

from catbird_django.engine import flow_cancel, steps, tick
from catbird_django.models import Event, FlowRun, StepRun, TaskRun
from catbird_django.statuses import CancelVerdict, SettleVerdict
from tests.flow_support import claim, ended, plan, start, statuses
from tests.sql.test_doctor import doctor
from tests.support import LEASE, USING, register, register_worker, second_session, until

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
GRACE = timedelta(seconds=30)
JUST_NOW = Now() - timedelta(seconds=1)
NOT_OF_RUNS = {"nobody_runs_it", "polls_only", "lease_too_long"}


def do_the_upkeep() -> tick.Tick:
    done = tick.tick(register_worker(), hold=timedelta(0), limit=100, cancel_grace=GRACE, using=USING)
    assert done.is_elected
    return done


def ills() -> list[str]:
    return [str(finding) for finding in doctor() if finding.check_id not in NOT_OF_RUNS]


def cancel(run: FlowRun, reason: str = "enough") -> CancelVerdict:
    [verdict] = flow_cancel.cancel_flows([run.pk], reason=reason, actor="kim", notify=False, using=USING)
    return verdict


def in_an_hour() -> datetime:
    return timezone.now() + HOUR


def test_a_step_that_has_not_ended_by_its_deadline_fails_its_run() -> None:
    """F20: in whatever state it is; its siblings are canceled (F18), and the flow's on_fail task is run."""
    register("tell")
    three = [{"name": "a", "deadline": 60}, {"name": "b"}, {"name": "c", "needs": ["a"]}]
    run = start(plan("late_step", *three, on_fail="tell"))
    held = claim()
    StepRun.objects.filter(deadline_at__isnull=False).update(deadline_at=JUST_NOW)

    do_the_upkeep()

    assert statuses(run) == {"a": "failed", "b": "canceled", "c": "canceled"}
    assert (ended(run).status, run.error["type"], run.error["step"]) == ("failed", "DeadlineExceeded", "a")
    assert steps.complete_steps([(held["a"].delivery, "1")], notify=False, using=USING) == [SettleVerdict.STALE]
    assert TaskRun.objects.filter(role="on_fail").count() == 1
    assert ills() == []


def test_a_step_that_waits_for_a_signal_has_a_deadline_too() -> None:
    """F20."""
    run = start(plan("late_signal", {"name": "a", "signal": {}, "deadline": 60}))
    StepRun.objects.update(deadline_at=JUST_NOW)

    do_the_upkeep()

    assert (statuses(run), ended(run).error["type"]) == ({"a": "failed"}, "DeadlineExceeded")
    event = Event.objects.get(run_kind="step", event="failed")
    assert (event.from_status, event.to_status) == ("waiting_for_signal", "failed")


def test_a_flow_that_has_not_ended_by_its_deadline_fails() -> None:
    """F20: with everything that lives in it."""
    run = start(plan("late_flow", {"name": "a"}, {"name": "b", "signal": {}}, deadline=60))
    claim()
    FlowRun.objects.update(deadline_at=JUST_NOW)

    do_the_upkeep()

    assert statuses(run) == {"a": "canceled", "b": "canceled"}
    assert (ended(run).status, run.error["type"]) == ("failed", "DeadlineExceeded")
    assert ills() == []


def test_a_flow_that_expires_is_stopped_as_by_cancel() -> None:
    """F20, T4: what waits ends at once, what runs is told, and then the run is expired."""
    run = start(plan("expires", {"name": "a"}, {"name": "b", "signal": {}}), expires_at=in_an_hour())
    delivery = claim()["a"].delivery
    FlowRun.objects.update(expires_at=JUST_NOW)

    do_the_upkeep()

    assert (statuses(run), ended(run).status) == ({"a": "canceling", "b": "canceled"}, "canceling")
    assert steps.complete_steps([(delivery, "1")], notify=False, using=USING) == [SettleVerdict.CANCELED]
    assert (statuses(run)["a"], ended(run).status) == ("canceled", "expired")
    assert ills() == []


@pytest.mark.parametrize("field", ["expires_at", "deadline_at"])
def test_a_run_that_is_being_canceled_is_nothing_to_hurry_for(field: str) -> None:
    """F17: its deadline is past, but it has nothing to do with it any more."""
    run = start(plan("hurried", {"name": "a"}))
    claim()
    FlowRun.objects.update(**{field: JUST_NOW})
    cancel(run)

    done = do_the_upkeep()

    assert done.next_due_in is None or done.next_due_in > timedelta(0)
    assert (ended(run).status, run.cancel_reason) == ("canceling", "enough")


def test_a_handler_that_does_not_answer_a_cancel_is_given_up_after_the_grace() -> None:
    """F17: but not one that may finish."""
    run = start(plan("deaf", {"name": "a"}, {"name": "b", "on_cancel": "finish"}))
    held = claim()
    assert cancel(run) is CancelVerdict.CANCELING
    do_the_upkeep()
    assert statuses(run) == {"a": "canceling", "b": "canceling"}

    StepRun.objects.update(cancel_requested_at=Now() - 2 * GRACE)
    do_the_upkeep()

    assert (statuses(run), ended(run).status) == ({"a": "canceled", "b": "canceling"}, "canceling")
    assert steps.complete_steps([(held["a"].delivery, "1")], notify=False, using=USING) == [SettleVerdict.STALE]
    assert steps.complete_steps([(held["b"].delivery, "1")], notify=False, using=USING) == [SettleVerdict.COMPLETED]
    assert (statuses(run)["b"], ended(run).status) == ("completed", "canceled")
    assert ills() == []


def test_a_cancel_is_finished_by_the_upkeep_when_the_worker_has_died() -> None:
    """F17: also where the step might have finished."""
    run = start(plan("dead", {"name": "a"}, {"name": "b", "on_cancel": "finish"}))
    claim()
    cancel(run)
    StepRun.objects.update(lease_until=JUST_NOW)

    do_the_upkeep()

    assert (set(statuses(run).values()), ended(run).status) == ({"canceled"}, "canceled")


def test_a_step_that_is_being_canceled_when_its_deadline_passes_is_canceled() -> None:
    """F17, T12: canceled wins."""
    run = start(plan("both", {"name": "a", "deadline": 60}))
    claim()
    cancel(run)
    StepRun.objects.update(deadline_at=JUST_NOW)

    do_the_upkeep()

    assert (statuses(run), ended(run).status) == ({"a": "canceled"}, "canceled")
    assert ills() == []


@pytest.mark.parametrize(
    ("field", "look"),  # the looks at the clock before the run is locked
    [("expires_at", 1), ("expires_at", 2), *(("deadline_at", look) for look in range(1, 5))],
)
def test_a_cancel_that_comes_while_the_upkeep_looks_for_late_runs_is_not_overtaken(field: str, look: int) -> None:
    """F17, R8: the run was late when the upkeep looked, and is being canceled when it is locked."""
    run = start(plan("overtaken", {"name": "a"}))
    delivery = claim()["a"].delivery
    FlowRun.objects.update(**{field: JUST_NOW})

    with clock_that_waits(look) as go_on:
        upkeep = threading.Thread(target=lambda: (look_for_late_runs(field), connections.close_all()))
        upkeep.start()
        until(lambda: pids_that_wait_for_the_clock() != [])
        cancel(run, "first")
        go_on()
        upkeep.join(timeout=30)

    assert (statuses(run), ended(run).status, run.cancel_reason) == ({"a": "canceling"}, "canceling", "first")
    assert steps.extend_steps([delivery], lease=LEASE, using=USING) == [SettleVerdict.CANCELING]
    steps.complete_steps([(delivery, "1")], notify=False, using=USING)
    assert ended(run).status == "canceled"
    assert ills() == []


def look_for_late_runs(field: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {'_cb_expire_flows' if field == 'expires_at' else '_cb_fail_overdue_flows'}(100)")


@contextmanager
def clock_that_waits(nth: int) -> Iterator[Callable[[], Any]]:
    """Make the n-th look at the clock of another session wait until it is told to go on."""
    with connection.cursor() as cursor, second_session() as session:
        cursor.execute("SELECT pg_get_functiondef('_cb_now()'::regprocedure)")
        [as_it_was] = cursor.fetchone()
        cursor.execute("SELECT pg_backend_pid()")
        [ours] = cursor.fetchone()
        session.execute("SELECT pg_advisory_lock(4711)")
        cursor.execute(f"""
            CREATE OR REPLACE FUNCTION _cb_now() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
            DECLARE
                v_looks integer := coalesce(nullif(current_setting('test.looks', true), ''), '0')::integer + 1;
            BEGIN
                IF pg_backend_pid() <> {int(ours)} THEN
                    PERFORM set_config('test.looks', v_looks::text, false);
                    IF v_looks = {nth} THEN
                        PERFORM pg_advisory_xact_lock_shared(4711);
                    END IF;
                END IF;
                RETURN pg_catalog.statement_timestamp();
            END
            $$""")
        try:
            yield lambda: session.execute("SELECT pg_advisory_unlock(4711)")
        finally:
            session.execute("SELECT pg_advisory_unlock_all()")
            cursor.execute(as_it_was)


def pids_that_wait_for_the_clock() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted")
        return [pid for (pid,) in cursor.fetchall()]
