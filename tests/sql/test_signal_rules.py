"""What a signal asks of the people who give it: quorum, decision, four eyes, deadline (F13)."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from catbird_django.engine import flow_cancel, signals, steps, tick
from catbird_django.models import Event, FlowRun, SignalDelivery, StepRun
from catbird_django.statuses import FlowStatus, SignalVerdict, StepStatus
from tests.flow_support import claim, ended, plan, start, statuses
from tests.sql.test_flow_races import deadlocks, ills, in_threads
from tests.support import USING, register_worker

ACCEPTED, DUPLICATE = SignalVerdict.ACCEPTED, SignalVerdict.DUPLICATE
NOT_ALLOWED, LATE = SignalVerdict.NOT_ALLOWED, SignalVerdict.LATE


def asking(**signal: Any) -> dict[str, Any]:
    """A flow of one step that waits for such a signal."""
    return plan("ask", {"name": "a", "signal": {"four_eyes": False, "quorum": 1, "decision": "", **signal}})


def give(run: FlowRun, actor: str, payload: Any = 1, **options: Any) -> SignalVerdict:
    return signals.signal_flow(run.pk, "a", json.dumps(payload), actor=actor, using=USING, **options).verdict


def waiting(run: FlowRun) -> StepRun:
    return StepRun.objects.get(flow_run=run)


def let_deadlines_pass() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE cb_step_runs SET signal_due_at = now() - interval '1 second'")


def tick_once() -> tick.Tick:
    return tick.tick(register_worker(), hold=timedelta(0), limit=100, cancel_grace=timedelta(seconds=30), using=USING)


def test_a_quorum_is_met_by_so_many_different_people() -> None:
    """F13: and the step is given what each of them has said, in order."""
    run = start(asking(quorum=3))

    assert give(run, "ann", {"ok": 1}) is ACCEPTED
    assert give(run, "ann", {"ok": 2}) is DUPLICATE
    assert give(run, "bob", {"ok": 3}) is ACCEPTED
    assert waiting(run).status == StepStatus.WAITING_FOR_SIGNAL
    assert ills() == []
    assert give(run, "cid", {"ok": 4}) is ACCEPTED
    assert give(run, "dan", {"ok": 5}) is DUPLICATE

    assert json.loads(claim()["a"].signal or "") == [{"ok": 1}, {"ok": 3}, {"ok": 4}]
    assert SignalDelivery.objects.count() == 5
    assert ills() == []


def test_of_a_quorum_nobody_is_nobody() -> None:
    """F13: people are counted by their names."""
    run = start(asking(quorum=2))

    assert give(run, "") is NOT_ALLOWED
    assert SignalDelivery.objects.get().verdict == "not_allowed"


def test_the_first_to_decide_against_it_decides() -> None:
    """F13: whatever the quorum."""
    run = start(asking(quorum=3, decision="ok"))

    assert give(run, "ann", {"ok": True}) is ACCEPTED
    assert give(run, "bob", {"ok": False, "reason": "too much"}) is ACCEPTED
    assert give(run, "cid", {"ok": True}) is DUPLICATE

    assert json.loads(claim()["a"].signal or "") == [{"ok": True}, {"ok": False, "reason": "too much"}]
    assert ills() == []


@pytest.mark.parametrize("payload", [{"ok": None}, {"ok": 0}, {"ok": "false"}, {}, ["ok"], 0])
def test_only_false_decides_against_it(payload: Any) -> None:
    run = start(asking(quorum=2, decision="ok"))

    give(run, "ann", payload)

    assert waiting(run).signaled_at is None


def test_under_four_eyes_who_started_the_run_may_not_approve_it() -> None:
    """F13: unless somebody says that they may, which is on record."""
    run = start(asking(four_eyes=True), actor="ann")

    assert give(run, "ann") is NOT_ALLOWED
    assert give(run, "") is NOT_ALLOWED
    assert waiting(run).signaled_at is None
    assert give(run, "ann", override=True) is ACCEPTED

    assert Event.objects.get(event="signaled").details == {"step": "a", "verdict": "accepted", "override": True}


def test_under_four_eyes_others_may() -> None:
    run = start(asking(four_eyes=True), actor="ann")

    assert give(run, "bob") is ACCEPTED


def test_a_declared_payload_meets_the_signal_at_its_deadline() -> None:
    """F13: alone, whatever the quorum."""
    run = start(asking(quorum=2, deadline=60, on_deadline={"ok": False}))
    give(run, "ann", {"ok": True})
    assert waiting(run).signal_due_at is not None

    assert tick_once().next_due_in is not None
    assert waiting(run).signaled_at is None
    let_deadlines_pass()
    tick_once()

    assert give(run, "bob", {"ok": True}) is DUPLICATE
    assert json.loads(claim()["a"].signal or "") == [{"ok": True}, {"ok": False}]
    assert SignalDelivery.objects.get(actor="").message == "at its deadline"
    assert ills() == []


@pytest.mark.parametrize("escalation", ["", "directors"])
def test_without_one_it_is_overdue_and_stays_open(escalation: str) -> None:
    """F13: for whoever it is escalated to, too."""
    run = start(asking(deadline=60, escalate_to=escalation))
    let_deadlines_pass()

    tick_once()
    tick_once()

    assert waiting(run).signal_overdue_at is not None
    assert [event.details for event in Event.objects.filter(event="signal_overdue")] == [{"escalate_to": escalation}]
    assert give(run, "bob") is ACCEPTED
    assert statuses(run) == {"a": "queued"}
    assert ills() == []


def test_the_deadline_begins_when_nothing_else_is_waited_for() -> None:
    signal = {"quorum": 1, "deadline": 60}
    run = start(plan("ask", {"name": "first"}, {"name": "a", "needs": ["first"], "signal": signal}))
    assert StepRun.objects.filter(signal_due_at__isnull=False).count() == 0

    one = claim()["first"]
    steps.complete_steps([(one.delivery, "1")], notify=False, using=USING)

    assert StepRun.objects.get(step__name="a").signal_due_at is not None
    assert ended(run).status == FlowStatus.STARTED


def test_a_canceled_run_takes_no_more_signals() -> None:
    run = start(asking(quorum=2))
    give(run, "ann")
    flow_cancel.cancel_flows([run.pk], reason="", actor="", notify=False, using=USING)

    assert give(run, "bob") is LATE


class TestRaces:
    """Two at the same time, round after round: one outcome, and nobody deadlocks (R6)."""

    @pytest.fixture(autouse=True)
    def _no_deadlocks(self, transactional_db: None) -> Iterator[None]:
        before = deadlocks()
        yield
        assert deadlocks() == before

    ROUNDS = 60

    def test_of_two_approvers_at_once_one_is_told_that_the_other_was_faster(self) -> None:
        runs = [start(asking()) for _ in range(self.ROUNDS)]

        verdicts = both(runs, lambda run: give(run, "ann"), lambda run: give(run, "bob"))

        assert Counter(map(frozenset, verdicts)) == {frozenset({ACCEPTED, DUPLICATE}): self.ROUNDS}
        assert ills() == []

    def test_two_of_a_quorum_of_two_meet_it_together(self) -> None:
        runs = [start(asking(quorum=2)) for _ in range(self.ROUNDS)]

        verdicts = both(runs, lambda run: give(run, "ann"), lambda run: give(run, "bob"))

        assert Counter(map(frozenset, verdicts)) == {frozenset({ACCEPTED}): self.ROUNDS}
        assert StepRun.objects.filter(status="queued").count() == self.ROUNDS
        assert ills() == []

    def test_the_same_person_twice_at_once_counts_once(self) -> None:
        runs = [start(asking(quorum=2)) for _ in range(self.ROUNDS)]

        verdicts = both(runs, lambda run: give(run, "ann"), lambda run: give(run, "ann"))

        assert Counter(map(frozenset, verdicts)) == {frozenset({ACCEPTED, DUPLICATE}): self.ROUNDS}
        assert ills() == []

    def test_a_signal_at_its_deadline_counts_or_the_deadline_does(self) -> None:
        runs = [start(asking(deadline=60, on_deadline={"ok": False})) for _ in range(self.ROUNDS)]
        let_deadlines_pass()

        verdicts = both(runs, lambda run: give(run, "ann", {"ok": True}), lambda _: tick_once())
        tick_once()

        assert StepRun.objects.filter(status="queued").count() == self.ROUNDS
        by_ann = [run.pk for run, verdict in zip(runs, verdicts, strict=True) if ACCEPTED in verdict]
        accepted = SignalDelivery.objects.filter(verdict="accepted")
        assert sorted(accepted.filter(actor="ann").values_list("flow_run_id", flat=True)) == by_ann
        assert accepted.count() == self.ROUNDS
        assert ills() == []

    def test_a_signal_beside_a_cancel_counts_or_is_late(self) -> None:
        runs = [start(asking()) for _ in range(self.ROUNDS)]

        def cancel(run: FlowRun) -> None:
            flow_cancel.cancel_flows([run.pk], reason="", actor="", notify=False, using=USING)

        verdicts = both(runs, lambda run: give(run, "ann"), cancel)

        assert {verdict for pair in verdicts for verdict in pair if verdict is not None} <= {ACCEPTED, LATE}
        assert {ended(run).status for run in runs} == {FlowStatus.CANCELED}
        assert ills() == []


def both(runs: list[FlowRun], one: Any, other: Any) -> list[tuple[Any, Any]]:
    """Do both things to each run at the same time; say what each has answered."""
    together = threading.Barrier(2, timeout=60)
    answers: dict[str, list[Any]] = {"one": [], "other": []}

    def do(work: Any, name: str) -> None:
        for run in runs:
            together.wait()
            answers[name].append(work(run))

    in_threads(lambda: do(one, "one"), lambda: do(other, "other"))
    return list(zip(answers["one"], answers["other"], strict=True))
