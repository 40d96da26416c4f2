"""`sql/flow_retention.sql`: flow runs go when their time is over, and take with them what belongs to them (T15)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from catbird_django.engine import flow_cancel, reports, signals, steps
from catbird_django.engine.flow_retention import apply_flow_retention
from catbird_django.engine.reports import LogLine
from catbird_django.models import Event, FlowRun, Readiness, RunLog, RunTag, SignalDelivery, StepInput, StepRun
from tests.flow_support import claim, complete, plan, start
from tests.support import USING, second_session

MONTH = timedelta(days=30)
PARTS = (StepRun, Readiness, StepInput, SignalDelivery, Event, RunLog, RunTag)

pytestmark = pytest.mark.django_db(transaction=True)


def apply(retention: timedelta | None = MONTH, *, after_id: int = 0, limit: int = 1000) -> tuple[int, int | None]:
    return apply_flow_retention(retention, after_id=after_id, limit=limit, using=USING)


def shape(**options: Any) -> dict[str, Any]:
    signaled = {"name": "b", "needs": ["a"], "signal": {"type": "x"}, "signal_schema": {}}
    return plan("order", {"name": "a"}, signaled, **options)


def ended(days: float, **options: Any) -> FlowRun:
    """A run with everything that a run can have, which began and ended so many days ago."""
    run = start(shape(**options), tags=["blue"])
    held = claim()["a"]
    reports.log_steps([LogLine(held.delivery, 1, "info", "here", timedelta(0))], using=USING)
    steps.complete_steps([(held.delivery, "1")], notify=False, using=USING)
    signals.signal_flow(run.pk, "b", "1", actor="kim", using=USING)
    complete(b=2)
    moment = Now() - timedelta(days=days)
    FlowRun.objects.filter(pk=run.pk).update(started_at=moment, finished_at=moment)
    return run


def test_a_run_goes_with_all_that_belongs_to_it_and_nothing_else_does() -> None:
    kept = ended(1)
    before = {part: part.objects.count() for part in PARTS}
    assert all(before.values())
    ended(31)

    assert apply() == (1, None)
    assert list(FlowRun.objects.all()) == [kept]
    assert {part: part.objects.count() for part in PARTS} == before


def test_runs_go_after_their_flow_s_retention_or_else_after_the_general_one() -> None:
    ended(2, retention=timedelta(days=1).total_seconds())
    kept = ended(0.5, retention=timedelta(days=1).total_seconds())
    usual = ended(2)

    assert apply() == (1, None)
    assert set(FlowRun.objects.all()) == {kept, usual}


def test_without_a_general_retention_only_flows_that_have_one_lose_runs() -> None:
    ended(1000)
    assert apply(None) == (0, None)
    ended(1000, retention=MONTH.total_seconds())

    assert apply(None) == (1, None)
    assert FlowRun.objects.count() == 1


def test_live_runs_stay_however_old_and_canceled_ones_go() -> None:
    live, canceled = start(shape()), start(shape())
    FlowRun.objects.update(started_at=Now() - timedelta(days=1000))
    flow_cancel.cancel_flows([canceled.pk], reason="", actor="", notify=False, using=USING)
    FlowRun.objects.filter(pk=canceled.pk).update(finished_at=Now() - timedelta(days=1000))

    assert apply() == (1, None)
    assert list(FlowRun.objects.all()) == [live]


def test_a_run_that_has_just_ended_stays_for_a_moment() -> None:
    ended(0)
    FlowRun.objects.update(finished_at=timezone.now())

    assert apply(timedelta(0)) == (0, None)


def test_a_run_that_is_locked_is_left_for_the_next_pass() -> None:
    run = ended(31)
    with second_session() as other:
        other.execute("SELECT FROM cb_flow_runs WHERE id = %s FOR UPDATE", [run.pk])

        assert apply() == (0, None)

    assert apply() == (1, None)


def test_a_pass_goes_on_where_it_stopped() -> None:
    runs = [ended(31) for _ in range(3)]

    assert apply(limit=2) == (2, runs[1].pk)
    assert apply(after_id=runs[1].pk, limit=2) == (1, None)
