"""The engine of flows by its SQL functions alone: readiness, skips, signals, ends (F3, F4, F8, F10-F12, F17, F18)."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from catbird_django.engine import flow_cancel, flows, steps
from catbird_django.models import FlowRun, Readiness, SignalDelivery, Step, StepInput, StepRun
from catbird_django.statuses import (
    CancelVerdict,
    FlowRunVerdict,
    FlowStatus,
    SettleVerdict,
    SignalVerdict,
    SkipReason,
    StepStatus,
)
from tests.flow_support import claim, claim_all, complete, ended, plan, signal, start, statuses, when
from tests.support import LEASE, USING

pytestmark = pytest.mark.django_db(transaction=True)


def test_steps_run_in_the_order_of_what_they_need_and_the_last_gives_the_output():
    """F3, F3a, F4, F8."""
    run = start(plan("linear", {"name": "a"}, {"name": "b", "needs": ["a"]}, {"name": "c", "needs": ["b"]}))
    assert statuses(run) == {
        "a": "queued",
        "b": "waiting_for_dependencies",
        "c": "waiting_for_dependencies",
    }

    complete(a=1)
    assert json.loads(complete(b=2)["b"].outputs or "") == {"a": 1}
    complete(c=3)

    assert (ended(run).status, run.output) == (FlowStatus.COMPLETED, 3)
    assert set(statuses(run).values()) == {"completed"}
    assert list(Readiness.objects.filter(flow_run=run, step=None).values_list("required_count", "completed_count")) == [
        (1, 1)
    ]


def test_a_join_is_queued_once_when_the_last_of_many_is_complete():
    """F3."""
    wide = [{"name": f"s{number}", "after": []} for number in range(8)]
    run = start(plan("diamond", *wide, {"name": "join", "needs": [step["name"] for step in wide]}))

    claims = complete(**{step["name"]: number for number, step in enumerate(wide)})
    assert len(claims) == 8

    join = claim()["join"]
    assert json.loads(join.outputs or "") == {f"s{number}": number for number in range(8)}
    assert StepInput.objects.filter(step_run_id=join.run_id).count() == 8
    assert steps.complete_steps([(join.delivery, "true")], notify=False, using=USING) == [SettleVerdict.COMPLETED]
    assert ended(run).output is True


def test_a_condition_that_is_not_met_skips_the_step_and_what_needs_it():
    """F10, F11a."""
    run = start(
        plan(
            "conditional",
            {"name": "a"},
            {"name": "b", "needs": ["a"], **when("a gt 10")},
            {"name": "c", "needs": ["b"]},
            {"name": "d", "needs": ["b"], "optional": ["b"]},
        )
    )

    complete(a=5)

    assert statuses(run) == {"a": "completed", "b": "skipped", "c": "skipped", "d": "queued"}
    assert json.loads(claim()["d"].outputs or "") == {}
    reasons = dict(StepRun.objects.filter(flow_run=run).values_list("step__name", "skip_reason"))
    assert (reasons["b"], reasons["c"]) == ("condition", "dependency")


def test_a_long_row_of_skips_cascades_and_the_run_completes_with_nothing():
    """F4, F8."""
    chain = [{"name": "s0", **when("input gt 10")}]
    chain += [{"name": f"s{number}", "needs": [f"s{number - 1}"]} for number in range(1, 200)]

    run = start(plan("cascade", *chain), 1)

    assert set(statuses(run).values()) == {"skipped"}
    assert (ended(run).status, run.output) == (FlowStatus.COMPLETED, None)


def test_an_output_that_is_required_and_missing_is_a_failure():
    """F8."""
    run = start(plan("required", {"name": "a", **when("input gt 10")}, output_required=True), 1)

    assert ended(run).status == FlowStatus.FAILED
    assert run.error["type"] == "NoOutput"


def test_a_condition_that_cannot_be_decided_fails_the_step_and_names_the_field():
    """F10b: an approval for large amounts must not be skipped because of a malformed one."""
    run = start(plan("malformed", {"name": "a"}, {"name": "b", "needs": ["a"], **when("a.amount gte 1000")}))

    complete(a={"amount": "5000 EUR"})

    assert statuses(run)["b"] == StepStatus.FAILED
    assert ended(run).status == FlowStatus.FAILED
    assert "a.amount" in run.error["message"]
    assert run.error["step"] == "b"


@pytest.mark.parametrize("early", [True, False])
def test_a_signal_counts_before_and_after_the_dependency(early: bool):
    """F12."""
    run = start(plan("approval", {"name": "a"}, {"name": "b", "needs": ["a"], "signal": {"quorum": 1}}))
    if early:
        assert signal(run, "b", {"ok": True}) is SignalVerdict.ACCEPTED
        assert statuses(run)["b"] == StepStatus.WAITING_FOR_DEPENDENCIES
        complete(a=1)
    else:
        complete(a=1)
        assert statuses(run)["b"] == StepStatus.WAITING_FOR_SIGNAL
        assert signal(run, "b", {"ok": True}) is SignalVerdict.ACCEPTED

    assert json.loads(claim()["b"].signal or "") == {"ok": True}
    assert signal(run, "b", {"ok": False}) is SignalVerdict.DUPLICATE


def test_every_signal_that_does_not_count_is_answered_and_written_down():
    """F12, R5a."""
    run = start(
        plan("refusals", {"name": "a"}, {"name": "b", "needs": ["a"], "signal": {}, **when("a")}, {"name": "c"})
    )
    unknown = FlowRun(pk=run.pk + 1)

    assert signal(unknown, "b", 1) is SignalVerdict.UNKNOWN_RUN
    assert signal(run, "nobody", 1) is SignalVerdict.UNKNOWN_STEP
    assert signal(run, "a", 1) is SignalVerdict.NO_SIGNAL
    assert signal(run, "b", 1, refusal=SignalVerdict.MALFORMED) is SignalVerdict.MALFORMED
    complete(a=0, c=0)
    assert statuses(run)["b"] == StepStatus.SKIPPED
    assert signal(run, "b", 1) is SignalVerdict.LATE
    assert signal(run, "b", 1, dedupe_id="x") is SignalVerdict.LATE
    assert signal(run, "b", 1, dedupe_id="x") is SignalVerdict.LATE

    assert SignalDelivery.objects.count() == 6  # the same dedupe id is one delivery
    assert set(SignalDelivery.objects.values_list("actor", flat=True)) == {"kim"}


def test_a_condition_about_the_signal_waits_for_it():
    """F10a."""
    run = start(plan("about", {"name": "a", "signal": {}, **when("signal.ok")}))
    assert statuses(run)["a"] == StepStatus.WAITING_FOR_SIGNAL

    signal(run, "a", {"ok": False})

    assert statuses(run)["a"] == StepStatus.SKIPPED
    assert ended(run).status == FlowStatus.COMPLETED


def test_a_failed_step_fails_the_run_once_and_cancels_its_siblings():
    """F18, R8."""
    run = start(plan("failing", {"name": "a"}, {"name": "b"}, {"name": "c", "needs": ["a", "b"]}))
    claims = claim()
    error = json.dumps({"type": "ValueError", "message": "no", "traceback": ""})

    assert steps.fail_steps([(claims["a"].delivery, error, None)], notify=False, using=USING) == [SettleVerdict.FAILED]

    assert (ended(run).status, run.error["step"]) == (FlowStatus.FAILED, "a")
    assert statuses(run) == {"a": "failed", "b": "canceled", "c": "canceled"}
    assert steps.complete_steps([(claims["b"].delivery, "1")], notify=False, using=USING) == [SettleVerdict.STALE]
    assert steps.extend_steps([claims["b"].delivery], lease=LEASE, using=USING) == [SettleVerdict.STALE]


def test_a_step_that_is_skipped_when_exhausted_lets_the_run_go_on():
    """F11a."""
    run = start(
        plan(
            "exhausted",
            {"name": "a", "on_exhausted": "skip", "max_retries": 1},
            {"name": "b", "needs": ["a"], "optional": ["a"]},
        )
    )
    error = json.dumps({"type": "ValueError", "message": "no", "traceback": ""})
    first = claim()["a"]
    assert steps.fail_steps([(first.delivery, error, timedelta(0))], notify=False, using=USING) == [
        SettleVerdict.RETRYING
    ]
    StepRun.objects.filter(pk=first.run_id).update(visible_at=None)
    second = claim()["a"]
    assert steps.fail_steps([(second.delivery, error, timedelta(0))], notify=False, using=USING) == [
        SettleVerdict.SKIPPED
    ]

    assert statuses(run) == {"a": "skipped", "b": "queued"}


def test_one_stale_claim_in_a_batch_across_runs_disturbs_nobody():
    """F4, R5."""
    shape = plan("batch", {"name": "a"})
    runs = [start(shape) for _ in range(3)]
    claims = claim_all(3)
    deliveries = sorted(one.delivery for one in claims)
    forged = steps.StepDelivery(deliveries[1].run_id, "00000000-0000-0000-0000-000000000000")

    verdicts = steps.complete_steps(
        [(deliveries[0], "1"), (forged, "2"), (deliveries[2], "3")], notify=False, using=USING
    )

    assert verdicts == [SettleVerdict.COMPLETED, SettleVerdict.STALE, SettleVerdict.COMPLETED]
    assert [ended(run).status for run in runs] == ["completed", "started", "completed"]


def test_a_claim_that_is_reported_twice_in_a_batch_counts_once():
    """F4, R5: also when its step is counted for by two others."""
    run = start(plan("twice", {"name": "a"}, {"name": "b", "needs": ["a"]}, {"name": "c", "needs": ["a", "b"]}))
    delivery = claim()["a"].delivery

    verdicts = steps.complete_steps([(delivery, "1"), (delivery, "2"), (delivery, "1")], notify=False, using=USING)

    assert sorted(verdicts) == [SettleVerdict.COMPLETED, SettleVerdict.STALE, SettleVerdict.STALE]
    assert steps.complete_steps([(delivery, "3")], notify=False, using=USING) == [SettleVerdict.STALE]
    counts = Readiness.objects.filter(flow_run=run).values_list("step__name", "completed_count")
    assert dict(counts) == {"a": 0, "b": 1, "c": 1, None: 0}


def test_cancel_ends_what_waits_at_once_and_what_runs_when_it_has_stopped():
    """F17."""
    run = start(plan("canceled", {"name": "a"}, {"name": "b"}, {"name": "c", "needs": ["a", "b"]}))
    [claimed] = [one for one in claim_all(100) if -one.handler_id == Step.objects.get(name="a").pk]
    # `b` was claimed too, so give it back: one runs, one is queued, one waits.
    other = StepRun.objects.get(flow_run=run, step__name="b")
    steps.release_steps([(steps.StepDelivery(other.pk, str(other.delivery_token)), None)], notify=False, using=USING)

    [verdict] = flow_cancel.cancel_flows([run.pk], reason="why", actor="kim", notify=False, using=USING)

    assert verdict is CancelVerdict.CANCELING
    assert statuses(run) == {"a": "canceling", "b": "canceled", "c": "canceled"}
    assert steps.extend_steps([claimed.delivery], lease=LEASE, using=USING) == [SettleVerdict.CANCELING]
    assert steps.complete_steps([(claimed.delivery, "1")], notify=False, using=USING) == [SettleVerdict.CANCELED]
    assert (ended(run).status, run.cancel_reason, run.canceled_by) == (FlowStatus.CANCELED, "why", "kim")
    assert flow_cancel.cancel_flows([run.pk], reason="", actor="", notify=False, using=USING) == [
        CancelVerdict.FINISHED
    ]


def test_keys_stand_for_one_run_of_the_flow_whatever_its_version():
    """T4a, F20, F21."""
    first = start(plan("keyed", {"name": "a"}), concurrency_keys=["k"])
    flows.register_flows([plan("keyed", {"name": "a"}, {"name": "b"})], using=USING)

    [again] = flows.run_flows("keyed", ["1"], concurrency_keys=["k"], using=USING)

    assert (again.run_id, again.verdict) == (first.pk, FlowRunVerdict.DUPLICATE)
    [other] = flows.run_flows("keyed", ["1"], concurrency_keys=["other"], using=USING)
    assert StepRun.objects.filter(flow_run_id=other.run_id).count() == 2  # the current version
    assert StepRun.objects.filter(flow_run=first).count() == 1  # pinned to its own


def test_registering_the_same_shape_again_writes_nothing():
    """F21."""
    shape = plan("same", {"name": "a"})
    [first] = flows.register_flows([shape], using=USING)
    before = list(Step.objects.values())

    assert flows.register_flows([shape, shape], using=USING) == [first, first]
    assert list(Step.objects.values()) == before


def test_the_statuses_of_flows_steps_and_skips_are_those_of_the_rule():
    """F9."""
    assert set(FlowStatus.values) == {
        *("started", "canceling", "failing", "completing"),
        *("completed", "failed", "canceled", "expired"),
    }
    assert set(StepStatus.values) == {
        *("waiting_for_dependencies", "waiting_for_signal", "waiting_for_state", "waiting_for_items"),
        *("queued", "started", "canceling", "completed", "failed", "skipped", "canceled"),
    }
    assert set(SkipReason.values) == {"condition", "dependency", "handler", "exhausted"}
