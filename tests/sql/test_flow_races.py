"""Many at the same runs at the same time: nobody deadlocks, nothing is counted twice or lost (F3, F4, R6)."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections

from catbird_django.engine import flow_cancel, flows, signals, steps, tick
from catbird_django.engine.tasks import LaneRequest
from catbird_django.models import FlowRun, Readiness, Step, StepRun
from tests.flow_support import claim, plan, when
from tests.sql.test_doctor import doctor
from tests.support import LEASE, USING, register_worker

pytestmark = pytest.mark.django_db(transaction=True)

ERROR = json.dumps({"type": "E", "message": "no", "traceback": ""})
NOT_OF_RUNS = {"nobody_runs_it", "polls_only", "lease_too_long"}


def in_threads(*works: Callable[[], Any]) -> None:
    """Do these at the same time; raise what any of them raises."""
    raised: list[BaseException] = []

    def do(work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - shown below
            raised.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=do, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert raised == []


def deadlocks() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def ills() -> list[str]:
    return [str(finding) for finding in doctor() if finding.check_id not in NOT_OF_RUNS]


def test_a_join_whose_predecessors_complete_at_the_same_time_is_queued_once() -> None:
    """F3: 200 rounds, and never does each of the two see the other missing."""
    rounds = 200
    shape = plan("join", {"name": "a"}, {"name": "b"}, {"name": "c", "needs": ["a", "b"]})
    flows.register_flows([shape], using=USING)
    flows.run_flows("join", ["1"] * rounds, using=USING)
    names = dict(Step.objects.values_list("pk", "name"))
    held = _claim_due(register_worker(), limit=rounds)
    together = threading.Barrier(2, timeout=60)

    def complete(name: str) -> None:
        for one in sorted(one for one in held if names[-one.handler_id] == name):
            together.wait()
            steps.complete_steps([(one.delivery, "1")], notify=False, using=USING)

    in_threads(lambda: complete("a"), lambda: complete("b"))

    assert StepRun.objects.filter(step__name="c", status="queued").count() == rounds
    assert set(Readiness.objects.filter(step__name="c").values_list("completed_count", flat=True)) == {2}
    last = claim(rounds)
    assert set(last) == {"c"}
    assert ills() == []


class Crowd:
    """What many do at once to the same few runs, at random."""

    STEPS = ("a", "b", "c", "d")

    def __init__(self, *, transactions: int) -> None:
        self.left = transactions
        self.did: Counter[str] = Counter()
        self._turn = threading.Lock()
        shape = plan(
            "crowd",
            {"name": "a", "max_retries": 3, "signal": {"type": "x"}, "signal_schema": {}},
            {"name": "b", "max_retries": 3},
            {"name": "c", "needs": ["a", "b"], "max_retries": 1, "on_exhausted": "skip", **when("a gt 1")},
            {"name": "d", "needs": ["b", "c"], "optional": ["c"], "signal": {"type": "x"}, "signal_schema": {}},
            {"name": "e", "needs": ["c", "d"], "optional": ["c", "d"], "after": ["a"]},
            on_fail="nobody",
        )
        flows.register_flows([shape], using=USING)
        self._shape = shape
        self.worker_id = register_worker()

    def take(self, what: str) -> bool:
        """Count one more transaction; say whether it may be made."""
        with self._turn:
            self.left -= 1
            self.did[what] += self.left >= 0
            return self.left >= 0

    def work(self, seed: int) -> None:
        """Claim and settle in every way, signal, cancel, begin."""
        dice = random.Random(seed)  # the same each time, as far as threads allow
        while self.left > 0:
            dice.choice([self._settle, self._settle, self._settle, self._signal, self._signal, self._begin])(dice)
            if dice.random() < 0.03:
                self._cancel(dice)

    def tick(self) -> None:
        while self.take("tick"):
            tick.tick(
                self.worker_id,
                hold=timedelta(seconds=60),
                limit=100,
                cancel_grace=timedelta(milliseconds=50),
                using=USING,
            )

    def _live(self) -> list[int]:
        live = FlowRun.objects.filter(status__in=["started", "canceling"]).order_by("id")
        return list(live.values_list("pk", flat=True)[:6])

    def _begin(self, _: random.Random) -> None:
        if len(self._live()) < 6 and self.take("begin"):
            flows.run_flows("crowd", ["1", "1"], using=USING)

    def _signal(self, dice: random.Random) -> None:
        if (live := self._live()) and self.take("signal"):
            step = dice.choice(["a", "d"])
            signals.signal_flow(dice.choice(live), step, str(dice.choice([1, 2])), actor="kim", using=USING)

    def _cancel(self, dice: random.Random) -> None:
        if (live := self._live()) and self.take("cancel"):
            runs = dice.sample(live, min(2, len(live)))
            flow_cancel.cancel_flows(runs, reason="enough", actor="kim", notify=True, using=USING)

    def _settle(self, dice: random.Random) -> None:
        lease = LEASE if dice.random() < 0.8 else timedelta(milliseconds=1)  # lost at once
        if not self.take("claim"):
            return
        held = _claim_due(self.worker_id, limit=dice.randint(1, 3), lease=lease)
        if not held:
            return
        deliveries = sorted(one.delivery for one in held)
        if dice.random() < 0.3 and self.take("extend"):
            steps.extend_steps(deliveries, lease=LEASE, using=USING)
        how = dice.choices(["complete", "fail", "skip", "release", "cancel"], weights=[12, 5, 1, 2, 0.3])[0]
        self.take(how)
        match how:
            case "complete":
                steps.complete_steps([(one, "2") for one in deliveries], notify=True, using=USING)
            case "fail":
                delay = dice.choice([None, timedelta(0)])
                steps.fail_steps([(one, ERROR, delay) for one in deliveries], notify=True, using=USING)
            case "skip":
                steps.skip_steps([(one, "no need") for one in deliveries], notify=True, using=USING)
            case "release":
                steps.release_steps([(one, None) for one in deliveries], notify=True, using=USING)
            case "cancel":
                cancellations = [(one, "enough") for one in deliveries]
                flow_cancel.cancel_claimed_steps(cancellations, notify=True, using=USING)


def _claim_due(worker_id: int, *, limit: int, lease: timedelta = LEASE) -> list[steps.StepClaim]:
    heads = steps.find_step_lanes(list(Step.objects.values_list("pk", flat=True)), None, using=USING)
    requests = [LaneRequest(head.lane, 0, limit) for head in heads if not head.is_suspect]
    suspects = [LaneRequest(head.lane, 0, 1) for head in heads if head.is_suspect]
    claims = steps.claim_steps(requests, worker_id=worker_id, lease=lease, using=USING)
    if suspects:
        claims += steps.claim_steps(suspects, worker_id=worker_id, lease=lease, suspect=True, using=USING)
    return claims


def test_ten_thousand_transactions_on_the_same_runs_neither_deadlock_nor_break_anything() -> None:
    """R6, R8, invariants 1 to 6, 11, 13, 15: complete, fail, skip, release, signal, cancel, tick."""
    before = deadlocks()
    crowd = Crowd(transactions=10_000)

    in_threads(crowd.tick, *(lambda seed=seed: crowd.work(seed) for seed in range(6)))

    assert sum(crowd.did.values()) == 10_000
    assert all(crowd.did[what] for what in ("begin", "complete", "fail", "skip", "release", "cancel", "signal", "tick"))
    assert set(FlowRun.objects.values_list("status", flat=True)) >= {"completed", "failed", "canceled"}
    assert deadlocks() == before
    assert ills() == []
