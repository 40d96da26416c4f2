"""`cb_doctor` and flows: each check finds what it is for, and none anything that our functions leave behind (W10)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from catbird_django.engine import flow_cancel, signals, steps
from catbird_django.engine.doctor import Finding
from catbird_django.models import (
    Event,
    Flow,
    FlowRun,
    Readiness,
    RunLog,
    RunTag,
    SignalDelivery,
    Step,
    StepInput,
    StepRun,
    Worker,
)
from tests.factories import WorkerFactory
from tests.flow_support import claim, complete, plan, start, when
from tests.sql.test_doctor import doctor
from tests.support import LEASE, USING, register_worker

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _alive() -> None:
    """Somebody runs everything, so that only what is corrupted is found."""
    WorkerFactory(handlers=["order.a", "order.b", "order.c"], is_listening=True)


@pytest.fixture
def _anything_goes() -> None:
    """Drop what forbids the corruption; the test's transaction brings it back."""
    with connection.cursor() as cursor:
        for table in ("cb_step_runs", "cb_flow_runs", "cb_step_readiness"):
            cursor.execute("SELECT conname FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'c'", [table])
            for (name,) in cursor.fetchall():
                cursor.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')


def order() -> FlowRun:
    """A run of a, then b and a signaled c; a is queued."""
    shape = plan(
        "order",
        {"name": "a"},
        {"name": "b", "needs": ["a"]},
        {"name": "c", "needs": ["a"], "signal": {"type": "x"}, "signal_schema": {}},
    )
    return start(shape)


def found_of(check_id: str) -> list[Finding]:
    return [finding for finding in doctor() if finding.check_id == check_id]


def of(name: str) -> StepRun:
    return StepRun.objects.get(step__name=name)


def change(name: str, **values: object) -> None:
    StepRun.objects.filter(pk=of(name).pk).update(**values)


def hold(name: str, **values: object) -> None:
    held = {
        "status": "started",
        "lease_until": timezone.now(),
        "delivery_token": uuid4(),
        "worker": Worker.objects.order_by("id")[0],
    }
    change(name, **{**held, "delivery_count": 1, **values})


def an_hour_ago() -> object:
    return timezone.now() - timedelta(hours=1)


def readiness_of(name: str | None) -> object:
    return Readiness.objects.filter(step__name=name) if name else Readiness.objects.filter(step=None)


def has_more_than_it_requires() -> None:
    readiness_of("b").update(completed_count=2)


def has_skipped_more_than_it_has() -> None:
    readiness_of("b").update(skipped_count=1)


def waits_with_all_it_needs() -> None:
    readiness_of("b").update(completed_count=1)


def is_queued_without_what_it_needs() -> None:
    change("b", status="queued", queued_at=timezone.now())


def goes_on_though_its_end_is_full() -> None:
    readiness_of(None).update(completed_count=2)


def has_lost_a_count() -> None:
    complete(a=1)
    readiness_of("c").update(completed_count=0)


def requires_less_than_planned() -> None:
    readiness_of("c").update(required_count=1)


def counts_a_skip_that_was_none() -> None:
    complete(a=1)
    readiness_of("c").update(skipped_count=1)


def ended_before_its_steps() -> None:
    FlowRun.objects.update(status="canceled", finished_at=timezone.now())


def has_only_steps_that_ended() -> None:
    StepRun.objects.update(status="canceled", finished_at=timezone.now())


def failed_without_an_error() -> None:
    has_only_steps_that_ended()
    FlowRun.objects.update(status="failed", finished_at=timezone.now())


def has_no_flow() -> None:
    Flow.objects.all().delete()


def lacks_a_step() -> None:
    readiness_of("b").delete()


def lacks_its_end() -> None:
    readiness_of(None).delete()


def was_signaled_by_nobody() -> None:
    StepRun.objects.filter(step__name="c").update(signaled_at=timezone.now())


def was_signaled_twice() -> None:
    given = {"flow_run_id": FlowRun.objects.get().pk, "step": "c", "verdict": "accepted", "at": timezone.now()}
    SignalDelivery.objects.create(**given)
    SignalDelivery.objects.create(**given)


@pytest.mark.usefixtures("_anything_goes")
@pytest.mark.parametrize(
    ("check_id", "corrupt"),
    [
        ("readiness_wrong", has_more_than_it_requires),
        ("readiness_wrong", has_skipped_more_than_it_has),
        ("readiness_wrong", waits_with_all_it_needs),
        ("readiness_wrong", is_queued_without_what_it_needs),
        ("readiness_wrong", goes_on_though_its_end_is_full),
        ("readiness_miscounted", has_lost_a_count),
        ("readiness_miscounted", requires_less_than_planned),
        ("readiness_miscounted", counts_a_skip_that_was_none),
        ("ended_with_live_steps", ended_before_its_steps),
        ("nothing_left_to_do", has_only_steps_that_ended),
        ("ended_wrong", failed_without_an_error),
        ("unknown_flow", has_no_flow),
        ("steps_missing", lacks_a_step),
        ("steps_missing", lacks_its_end),
        ("signal_wrong", was_signaled_by_nobody),
        ("signal_wrong", was_signaled_twice),
    ],
)
def test_a_flow_run_that_cannot_be_is_found(check_id: str, corrupt: Callable[[], None]) -> None:
    """Invariants 1, 2, 3, 11 and 13."""
    run = order()
    assert doctor() == []

    corrupt()

    [finding] = found_of(check_id)
    assert (finding.severity, finding.run_kind, finding.run_id) == ("error", "flow", run.pk)
    assert finding.message
    assert finding.advice


def ended_with_a_lease() -> None:
    hold("a", status="completed", output=1, finished_at=timezone.now())


def held_without_a_token() -> None:
    hold("a", delivery_token=None)


def waiting_with_a_lease() -> None:
    change("b", lease_until=timezone.now())


def lease_of_long_ago() -> None:
    hold("a", lease_until=an_hour_ago())


def lease_for_a_day_of_a_worker_that_is_gone() -> None:
    hold("a", worker=WorkerFactory(silent=True), lease_until=timezone.now() + timedelta(days=1))


def skipped_for_no_reason() -> None:
    change("b", status="skipped", finished_at=timezone.now())


def failed_more_often_than_it_was_delivered() -> None:
    change("a", failure_count=1)


def failed_more_often_than_allowed() -> None:
    change("a", failure_count=3, delivery_count=3)


def has_no_step() -> None:
    Step.objects.filter(name="a").delete()


@pytest.mark.usefixtures("_anything_goes")
@pytest.mark.parametrize(
    ("check_id", "corrupt", "step"),
    [
        ("ended_but_held", ended_with_a_lease, "a"),
        ("held_without_lease", held_without_a_token, "a"),
        ("queued_but_held", waiting_with_a_lease, "b"),
        ("lease_ran_out", lease_of_long_ago, "a"),
        ("lease_too_long", lease_for_a_day_of_a_worker_that_is_gone, "a"),
        ("ended_wrong", skipped_for_no_reason, "b"),
        ("counts_wrong", failed_more_often_than_it_was_delivered, "a"),
        ("counts_wrong", failed_more_often_than_allowed, "a"),
        ("unknown_step", has_no_step, "a"),
    ],
)
def test_a_step_run_that_cannot_be_is_found(check_id: str, corrupt: Callable[[], None], step: str) -> None:
    """Invariants 3, 4, 13 and 15."""
    order()
    expected = of(step).pk

    corrupt()

    [finding] = found_of(check_id)
    assert (finding.severity, finding.run_kind, finding.run_id) == ("error", "step", expected)


def with_all_events() -> steps.StepClaim:
    """A run whose first step is claimed by a worker that writes every event."""
    order()
    lanes = steps.find_step_lanes(list(Step.objects.values_list("pk", flat=True)), None, using=USING)
    requests = [steps.LaneRequest(head.lane, 0, 1) for head in lanes]
    worker_id = register_worker()
    Worker.objects.filter(pk=worker_id).update(is_listening=True)
    [held] = steps.claim_steps(requests, worker_id=worker_id, lease=LEASE, all_events=True, using=USING)
    return held


@pytest.mark.parametrize(
    ("check_id", "event", "from_status", "to_status", "token"),
    [
        ("completed_twice", "completed", "started", "completed", "same"),
        ("left_its_end", "released", "started", "queued", "same"),
        ("settled_by_stranger", "released", "started", "queued", "other"),
        ("deliveries_wrong", "claimed", "queued", "started", "other"),
        ("token_used_twice", "claimed", "queued", "started", "same"),
    ],
)
def test_a_history_of_a_step_that_cannot_be_is_found(
    check_id: str, event: str, from_status: str, to_status: str, token: str
) -> None:
    """Invariants 5, 6 and 15."""
    held = with_all_events()
    steps.complete_steps([(held.delivery, "1")], notify=False, all_events=True, using=USING)
    assert [finding.check_id for finding in doctor()] == []

    Event.objects.create(
        at=timezone.now(),
        run_kind="step",
        run_id=held.run_id,
        event=event,
        from_status=from_status,
        to_status=to_status,
        actor="worker",
        delivery_token=held.delivery.delivery_token if token == "same" else uuid4(),
    )

    [finding] = found_of(check_id)
    assert (finding.run_kind, finding.run_id) == ("step", held.run_id)


def test_a_flow_run_that_was_changed_after_its_end_is_found() -> None:
    """Invariant 6."""
    run = order()
    flow_cancel.cancel_flows([run.pk], reason="", actor="", notify=False, using=USING)
    assert found_of("left_its_end") == []

    Event.objects.create(
        at=timezone.now(), run_kind="flow", run_id=run.pk, event="failed", from_status="started", to_status="failed"
    )

    [finding] = found_of("left_its_end")
    assert (finding.run_kind, finding.run_id) == ("flow", run.pk)


def test_rows_that_belong_to_a_run_that_is_gone_are_found() -> None:
    """Invariant 13."""
    now, gone = timezone.now(), 10**15
    run = order()
    step_id = Step.objects.get(name="a").pk
    StepRun.objects.create(flow_run_id=gone, step_id=step_id)
    Readiness.objects.create(flow_run_id=gone, required_count=1)
    StepInput.objects.create(step_run_id=gone, source="a", source_run_id=of("b").pk, place=1)
    SignalDelivery.objects.create(flow_run_id=gone, step="a", verdict="accepted", at=now)
    SignalDelivery.objects.create(flow_run_id=gone, step="a", verdict="unknown_run", at=now)
    for kind in ("flow", "step"):
        Event.objects.create(at=now, event="failed", run_kind=kind, run_id=gone)
        RunLog.objects.create(at=now, attempt=1, level="info", message="", run_kind=kind, run_id=gone)
        RunTag.objects.create(tag="blue", run_kind=kind, run_id=gone)

    subjects = [finding.subject.split()[0] for finding in found_of("orphan")]

    assert sorted(subjects) == sorted(
        [
            "cb_step_runs",
            "cb_step_readiness",
            "cb_step_inputs",
            "cb_signals",
            *["cb_events", "cb_run_logs", "cb_run_tags"] * 2,
        ]
    )
    assert run.pk not in {finding.run_id for finding in doctor()}


def test_a_due_step_that_no_worker_runs_is_a_warning() -> None:
    """Invariant 14."""
    Worker.objects.update(handlers=["order.b"])
    order()

    [finding] = found_of("nobody_runs_it")
    assert (finding.severity, finding.subject, finding.run_id) == ("warning", "order.a", of("a").pk)


def test_a_worker_that_is_busy_with_a_step_is_not_idle() -> None:
    order()
    hold("a", lease_until=timezone.now() + timedelta(seconds=30))

    assert [finding for finding in doctor() if finding.check_id == "due_beside_idle_worker"] == []


def test_flows_in_every_state_are_healthy() -> None:
    """Whatever our functions do to them."""
    order()
    complete(a=1)
    signals.signal_flow(FlowRun.objects.get().pk, "c", "1", actor="kim", using=USING)
    shape = plan(
        "order",
        {"name": "a", "on_exhausted": "skip"},
        {"name": "b", "needs": ["a"], "optional": ["a"], **when("a gt 1")},
        {"name": "c", "needs": ["b"], "optional": ["b"]},
    )
    for _ in range(4):
        start(shape)
    claims = list(claim().values())
    assert len(claims) > 0
    error = json.dumps({"type": "E", "message": "m", "traceback": ""})
    failed = [one for one in claims if one.flow_run_id != FlowRun.objects.order_by("id")[0].pk]
    steps.fail_steps([(one.delivery, error, None) for one in failed[:1]], notify=False, using=USING)
    Worker.objects.update(is_listening=True)

    assert doctor() == []
