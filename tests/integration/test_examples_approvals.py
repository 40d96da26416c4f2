"""`examples/approvals`: the order flow of the specification, run to its three ends by a real worker (SPEC 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from catbird_django import PayloadError, SignalRefused, testing
from catbird_django.models import FlowRun, SignalDelivery
from catbird_django.statuses import FlowStatus, StepStatus
from tests.examples import CHECKOUT, importing_from
from tests.support import working

pytestmark = pytest.mark.django_db(transaction=True)

TUTORIAL = CHECKOUT / "docs" / "tutorial" / "first-flow.md"


@pytest.fixture
def flows() -> Iterator[Any]:
    with importing_from("approvals", "store") as import_module:
        yield import_module("store.flows")


@pytest.fixture
def desk(flows: Any) -> Iterator[Any]:
    with importing_from("approvals") as import_module:
        yield import_module("store.desk")


def test_the_example_of_the_specification_runs_as_it_stands(flows: Any) -> None:
    """SPEC 4: word for word."""
    orders, Order, Approval = flows.orders, flows.Order, flows.Approval

    with working():
        run = orders.run(Order(id=1, total=5000.0))
        run.signal("approve", Approval(by="kim", ok=True))
        assert run.wait(timeout=10) == "shipped 1"
        assert orders.run(Order(id=2, total=5.0)).wait(timeout=10) == "shipped 2 without asking"


def test_an_expensive_order_waits_until_somebody_has_decided(flows: Any, desk: Any, work_until_idle: Any) -> None:
    """F10, F12: nothing runs while it waits, and the worker has nothing to do."""
    approved = desk.place(flows.Order(id=1, total=5000.0), by="ada")
    refused = desk.place(flows.Order(id=2, total=5000.0), by="ada")
    work_until_idle()
    assert desk.waiting() == [approved.id, refused.id]
    assert approved.steps()["approve"] is StepStatus.WAITING_FOR_SIGNAL

    assert desk.decide(approved.id, by="kim", ok=True) == "thank you"
    assert desk.decide(refused.id, by="kim", ok=False) == "thank you"
    assert desk.decide(refused.id, by="lee", ok=True) == "the signal was given before"
    work_until_idle()

    assert approved.wait(timeout=10) == "shipped 1"
    assert refused.wait(timeout=10) == "refunded 2"
    assert desk.waiting() == []
    assert list(SignalDelivery.objects.order_by("id").values_list("actor", "verdict")) == [
        ("kim", "accepted"),
        ("kim", "accepted"),
        ("lee", "duplicate"),
    ]


def test_a_cheap_order_asks_nobody(flows: Any, desk: Any, work_until_idle: Any) -> None:
    handle = desk.place(flows.Order(id=3, total=5.0), by="ada")
    work_until_idle()

    assert handle.wait(timeout=10) == "shipped 3 without asking"
    assert desk.decide(handle.id, by="kim", ok=True) == "the step no longer waits for it"
    assert desk.place(flows.Order(id=3, total=5.0), by="ada").id == handle.id
    assert FlowRun.objects.get().started_by == "ada"


def test_the_page_about_tests_quotes_what_an_assertion_says(flows: Any) -> None:
    page = (CHECKOUT / "docs" / "howto" / "testing.md").read_text()
    run = flows.orders.run(flows.Order(id=2, total=5000.0))
    testing.work_until_idle()

    with pytest.raises(AssertionError) as assertion:
        testing.assert_completed(run)

    assert f"AssertionError: {assertion.value}".replace(f"order {run.id}>", "order 2>") in page


def test_the_tutorial_quotes_what_is_said(flows: Any, work_until_idle: Any) -> None:
    page = TUTORIAL.read_text()
    run = flows.orders.run(flows.Order(id=1, total=5000.0))
    work_until_idle()

    assert str(run.explain()[0]) in page
    with pytest.raises(PayloadError) as bad_input:
        flows.orders.run({"id": 2, "total": "5000 EUR"})
    assert str(bad_input.value) in page
    with pytest.raises(SignalRefused) as bad_signal:
        run.signal("approve", {"by": "kim", "ok": "yes"})
    assert str(bad_signal.value).replace(f"run {run.id}", "run 1") in page
    assert str({step: str(status) for step, status in run.steps().items()}) in page
    assert run.cancel() is FlowStatus.CANCELED
