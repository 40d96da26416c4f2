"""F12: signals as an application gives them: accepted, refused with a verdict, and on record."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from catbird_django import Flow, InvalidOption, PayloadError, Signal, SignalRefused, asignal_flow, signal_flow
from catbird_django.client.registration import register_flows
from catbird_django.definitions.registry import registry
from catbird_django.models import SignalDelivery
from catbird_django.statuses import SignalVerdict, StepStatus
from tests.flows import Approval, Order, declare_orders, run_steps

pytestmark = pytest.mark.django_db(transaction=True)

APPROVAL = {"by": "kim", "ok": True}


def refusal_of(run_id: int, step: Any, payload: Any, **options: Any) -> SignalVerdict:
    with pytest.raises(SignalRefused) as caught:
        signal_flow(run_id, step, payload, **options)
    return caught.value.verdict


def test_a_signal_is_given_by_step_or_name_and_its_actor_is_recorded() -> None:
    flow: Flow[Any, Any] = Flow("two_signals")

    @flow.step(signal=Approval)
    def first(signal: Approval) -> bool:
        return signal.ok

    @flow.step(signal=Signal(bool))
    def second(first: bool, signal: bool) -> bool:
        return first and signal

    handle = flow.run()
    handle.signal(first, Approval(by="kim", ok=True), actor="kim")
    signal_flow(handle.id, "second", True)
    run_steps()

    assert handle.wait(timeout=5) is True
    assert list(SignalDelivery.objects.order_by("id").values_list("step", "actor", "verdict", "payload")) == [
        ("first", "kim", "accepted", APPROVAL),
        ("second", "", "accepted", True),
    ]


def test_every_refusal_has_its_verdict_and_leaves_the_transaction_usable() -> None:
    """R5a."""
    handle = declare_orders().run(Order(1, 5000.0))
    skipped = declare_orders("small").run(Order(1, 5.0))
    run_steps()

    with transaction.atomic():
        assert refusal_of(999_999, "approve", APPROVAL) is SignalVerdict.UNKNOWN_RUN
        assert refusal_of(handle.id, "aprove", APPROVAL) is SignalVerdict.UNKNOWN_STEP
        assert refusal_of(handle.id, "ship", APPROVAL) is SignalVerdict.NO_SIGNAL
        assert refusal_of(skipped.id, "approve", APPROVAL) is SignalVerdict.LATE
        handle.signal("approve", APPROVAL)
        assert refusal_of(handle.id, "approve", APPROVAL) is SignalVerdict.DUPLICATE

    assert list(SignalDelivery.objects.order_by("id").values_list("verdict", flat=True)) == [
        "unknown_run",
        "unknown_step",
        "no_signal",
        "late",
        "accepted",
        "duplicate",
    ]


def test_a_refusal_that_leaves_the_callers_transaction_takes_its_record_along() -> None:
    """R5a."""
    handle = declare_orders().run(Order(1, 5000.0))

    refused = f"'ship' of run {handle.id}: the step waits for no signal"
    with pytest.raises(SignalRefused, match=refused), transaction.atomic():
        handle.signal("ship", APPROVAL)

    assert SignalDelivery.objects.count() == 0


@pytest.mark.parametrize(
    ("payload", "path", "stored"),
    [
        ({"by": "kim"}, "signal.ok", {"by": "kim"}),
        ({"by": 5, "ok": True}, "signal.by", {"by": 5, "ok": True}),
        ({"by": "kim", "ok": "yes"}, "signal.ok", {"by": "kim", "ok": "yes"}),
        (None, "signal", None),
        ([], "signal", []),
        ("\ud800", "signal", None),
        (object(), "signal", None),
        ({"by": "a\x00", "ok": True}, "signal.by", None),
    ],
)
def test_a_malformed_payload_is_refused_by_field_and_recorded(payload: Any, path: str, stored: Any) -> None:
    """F12, T2a: nothing changes, and the step still waits."""
    handle = declare_orders().run(Order(1, 5000.0))
    run_steps()

    with pytest.raises(SignalRefused, match=path) as caught:
        handle.signal("approve", payload, actor="kim")

    assert caught.value.verdict is SignalVerdict.MALFORMED
    assert isinstance(caught.value.__cause__, PayloadError)
    assert caught.value.__cause__.path == path
    recorded = SignalDelivery.objects.get()
    assert (recorded.verdict, recorded.actor, recorded.payload) == ("malformed", "kim", stored)
    assert path in recorded.message
    assert handle.steps()["approve"] is StepStatus.WAITING_FOR_SIGNAL


def test_a_malformed_payload_for_what_takes_no_signal_is_refused_for_that() -> None:
    """F12: the type is not the first thing wrong."""
    handle = declare_orders().run(Order(1, 5000.0))

    assert refusal_of(handle.id, "nobody", object()) is SignalVerdict.UNKNOWN_STEP
    assert refusal_of(handle.id, "ship", object()) is SignalVerdict.NO_SIGNAL
    assert refusal_of(999_999, "approve", object()) is SignalVerdict.UNKNOWN_RUN


def test_the_same_dedupe_id_gets_the_first_answer() -> None:
    handle = declare_orders().run(Order(1, 5000.0))

    handle.signal("approve", APPROVAL, dedupe_id="mail-7")
    handle.signal("approve", APPROVAL, dedupe_id="mail-7")

    assert SignalDelivery.objects.count() == 1
    assert refusal_of(handle.id, "ship", APPROVAL, dedupe_id="mail-7") is SignalVerdict.NO_SIGNAL
    assert refusal_of(handle.id, "approve", APPROVAL, dedupe_id="mail-8") is SignalVerdict.DUPLICATE


def test_null_is_a_payload_where_the_type_says_so() -> None:
    flow: Flow[Any, Any] = Flow("nullable")

    @flow.step(signal=bool | None)
    def decide(signal: bool | None) -> str:
        return repr(signal)

    handle = flow.run()
    handle.signal("decide", None)
    run_steps()

    assert handle.wait(timeout=5) == "None"


def test_a_signal_to_a_run_of_another_shape_is_left_to_its_own_workers() -> None:
    """F21: this process has another type for it, which is not the run's."""
    old = declare_orders()
    handle = old.run(Order(1, 5000.0))
    registry.flows.clear()
    newer: Flow[Any, Any] = Flow("order")

    @newer.step(signal=int)
    def approve(signal: int) -> int:
        return signal

    signal_flow(handle.id, "approve", APPROVAL)

    assert SignalDelivery.objects.get().verdict == "accepted"


def test_who_does_not_declare_the_flow_can_signal_too() -> None:
    orders = declare_orders()
    register_flows([orders.definition], using="default")
    handle = orders.run(Order(1, 5000.0))
    registry.flows.clear()

    signal_flow(handle.id, "approve", APPROVAL)

    assert SignalDelivery.objects.get().verdict == "accepted"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"run_id": "12"}, "run_id: "),
        ({"run_id": True}, "run_id: "),
        ({"run_id": 0}, "run_id: "),
        ({"run_id": 2**63}, "run_id: "),
        ({"step": None}, "step: "),
        ({"step": 7}, "step: "),
        ({"actor": None}, "actor: "),
        ({"dedupe_id": ""}, "dedupe_id: "),
        ({"dedupe_id": "x" * 513}, "dedupe_id: "),
        ({"dedupe_id": "\x00"}, "dedupe_id: "),
        ({"dedupe_id": 5}, "dedupe_id: "),
    ],
)
def test_arguments_that_cannot_be_are_refused_by_name(arguments: Any, complaint: str) -> None:
    given = {"run_id": 1, "step": "approve", "payload": APPROVAL, **arguments}

    with pytest.raises(InvalidOption, match=f"^{complaint}"):
        signal_flow(**given)

    assert SignalDelivery.objects.count() == 0


def test_a_name_that_no_step_can_have_is_an_unknown_step() -> None:
    handle = declare_orders().run(Order(1, 5000.0))

    for name in ("", "\x00", "\ud800", "x" * 10_000):
        assert refusal_of(handle.id, name, APPROVAL) is SignalVerdict.UNKNOWN_STEP


async def test_async_twin() -> None:
    handle = await declare_orders().arun(Order(1, 5000.0))

    await asignal_flow(handle.id, "approve", APPROVAL)

    with pytest.raises(SignalRefused):
        await handle.asignal("approve", APPROVAL)
