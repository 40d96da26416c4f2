"""E1: what is written down about runs from `.run()` to their end, and what the doctor makes of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from catbird_django import task
from catbird_django.engine.doctor import examine
from catbird_django.models import Event, TaskRun
from tests.support import USING, work_off

pytestmark = pytest.mark.django_db(transaction=True)


def events_of(handle: Any) -> list[tuple[str, str, str, str]]:
    events = Event.objects.filter(run_id=handle.id).order_by("id")
    return list(events.values_list("event", "from_status", "to_status", "actor"))


def declare_charge() -> Any:
    @task(condition="input.amount gte 10")
    def charge(input: dict[str, Any]) -> int:
        return int(input["amount"])

    return charge


def findings() -> set[str]:
    seconds = {"lease": 30, "sweep": 5, "worker_ttl": 300, "patience": 60}
    durations = {name: timedelta(seconds=value) for name, value in seconds.items()}
    return {finding.check_id for finding in examine(**durations, is_notifying=True, using=USING)}


def test_with_all_events_a_history_begins_with_the_birth(settings: Any) -> None:
    """E1: EVENTS = "all" writes every transition, as the doctor's checks of histories need it."""
    settings.CATBIRD = {"EVENTS": "all"}

    @task
    def double(input: int) -> int:
        return input * 2

    plain, keyed = double.run(1), double.run(2, concurrency_key="k")
    many = double.run_many([3, 4])
    double.run(5, concurrency_key="k")
    work_off("double")
    again = plain.retry(actor="kim")

    life = [
        ("queued", "", "queued", "client"),
        ("claimed", "queued", "started", "worker"),
        ("completed", "started", "completed", "worker"),
    ]
    assert [events_of(handle) for handle in (plain, keyed, *many)] == [life] * 4
    assert events_of(again) == [("queued", "", "queued", "client"), ("retried", "", "", "kim")]


def test_the_doctor_judges_what_was_queued_with_all_events(settings: Any) -> None:
    """E1, invariant 5: a second completion of a real run is found."""
    settings.CATBIRD = {"EVENTS": "all"}

    @task
    def double(input: int) -> int:
        return input * 2

    handle = double.run(1)
    work_off("double")
    assert "completed_twice" not in findings()

    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor)"
            " SELECT at, run_kind, run_id, event, from_status, to_status, actor FROM cb_events"
            " WHERE event = 'completed'"
        )
    assert TaskRun.objects.get().id == handle.id
    assert {"completed_twice", "left_its_end"} <= findings()


def test_what_ends_as_it_is_queued_leaves_an_event_and_what_is_queued_does_not() -> None:
    """E1, T6: skipped, or failed because the condition cannot be decided."""
    charge = declare_charge()

    skipped, failed, queued = (charge.run({"amount": amount}) for amount in (1, "much", 10))

    assert events_of(skipped) == [("skipped", "", "skipped", "client")]
    assert events_of(failed) == [("failed", "", "failed", "client")]
    assert "amount" in Event.objects.get(run_id=failed.id).details["message"]
    assert events_of(queued) == []


def test_an_expiry_is_an_event() -> None:
    """E1, T4."""

    @task
    def mail() -> None: ...

    handle = mail.run(expires_at=timezone.now() + timedelta(hours=1))
    TaskRun.objects.update(expires_at=Now() - timedelta(seconds=1))
    work_off("mail")

    assert events_of(handle) == [("expired", "queued", "expired", "tick")]


def test_a_retry_is_an_event_of_the_new_run_and_says_who() -> None:
    """E1: an operator's action. T13."""

    @task
    def mail() -> None: ...

    handle = mail.run(concurrency_key="k")
    handle.cancel(actor="ada")
    first, second = handle.retry(actor="kim"), handle.retry(actor="sam")

    assert first.id == second.id
    assert events_of(first) == [("retried", "", "", "kim")]
    assert Event.objects.get(run_id=first.id).details == {"origin": handle.id}
    assert events_of(handle) == [("canceled", "queued", "canceled", "ada")]


def test_a_replaced_input_is_an_event_and_a_duplicate_is_none() -> None:
    """E1: none for no-ops. T13."""

    @task
    def index(input: int) -> None: ...

    debounced = index.run(1, debounce_key="page", delay=60)
    index.run(2, debounce_key="page", delay=60)
    single = index.run(1, concurrency_key="page")
    index.run(2, concurrency_key="page")

    assert events_of(debounced) == [("replaced", "queued", "queued", "client")]
    assert events_of(single) == []
