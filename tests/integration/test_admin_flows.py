"""U2, U4, U7, F25: pages of flows and their runs, what they show and to whom, and the form that gives a signal."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from catbird_django import Flow, Signal
from catbird_django.admin.markup import badge
from catbird_django.definitions.registry import registry
from catbird_django.models import Flow as StoredFlow
from catbird_django.models import FlowRun, SignalDelivery
from catbird_django.monitoring.stored_plan import read_plan
from catbird_django.statuses import FlowStatus, StepStatus
from tests.flows import Approval, Order, declare_orders, run_steps

pytestmark = pytest.mark.django_db

EVIL = '<script>alert("cb")</script><img src=x onerror=alert(1)>'
APPROVAL = '{"by": "kim", "ok": true}'


def client_with(*codenames: str) -> Client:
    user = User.objects.create_user(f"user-{'-'.join(codenames)}", is_staff=True)
    permissions = Permission.objects.filter(content_type__app_label="catbird", codename__in=codenames)
    assert len(permissions) == len(codenames)
    user.user_permissions.set(permissions)
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def client(admin_user: User) -> Client:
    client = Client()
    client.force_login(admin_user)
    return client


@pytest.fixture
def waiting() -> FlowRun:
    """A run that waits for its approval."""
    run = declare_orders().run(Order(1, 5000.0), actor="ada", tags=["red"])
    run_steps()
    return FlowRun.objects.get(pk=run.id)


def page_url(row: Any) -> str:
    return reverse(f"admin:catbird_{type(row).__name__.lower()}_change", args=[row.pk])


def list_url(model: str) -> str:
    return reverse(f"admin:catbird_{model}_changelist")


def signal_url(run: FlowRun, step: str = "approve") -> str:
    return reverse("admin:catbird_flowrun_signal", args=[run.pk]) + f"?step={step}"


def shown(client: Client, url: str, **parameters: Any) -> str:
    response = client.get(url, parameters)
    assert response.status_code == 200, response
    return response.content.decode()


def texts(page: str) -> str:
    """The words of a page, without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


# Flows


def test_the_page_of_a_flow_has_its_picture_its_steps_and_its_types(client: Client, waiting: FlowRun) -> None:
    """U2."""
    page = shown(client, page_url(waiting.flow))

    assert '<svg xmlns="http://www.w3.org/2000/svg" class="catbird-graph graph-shrinks"' in page
    assert "yes: it is what is run by name" in page
    said = texts(page)
    assert "validate.total gt 1000" in said
    assert "tests.flows:declare_orders" in said
    assert "Approval" in said
    assert "catbird/graph.css" in page


def test_every_version_has_a_page_that_leads_to_the_current_one(client: Client, waiting: FlowRun) -> None:
    """F21."""
    registry.flows.clear()
    declare_orders(description="Newer.").run(Order(2, 1.0))
    newer = StoredFlow.objects.get(version=2)

    assert f'href="{page_url(newer)}">2</a>' in shown(client, page_url(waiting.flow))
    listed = texts(shown(client, list_url("flow")))
    assert listed.index("order 2") < listed.index("order 1")


def test_the_stored_plan_is_the_one_that_the_code_declared(waiting: FlowRun) -> None:
    """F21: also when no code declares it any more."""
    declared = registry.flow("order").definition.plan.as_json()
    stored = read_plan(waiting.flow).as_json()

    for step, known in zip(stored["steps"], declared["steps"], strict=True):
        for key in ("takes_context", "condition_roots", "max_lost"):
            known.pop(key)
            step.pop(key)
        for one in known["dependencies"] + step["dependencies"]:
            one.pop("argument_position")
    assert stored == declared


def test_a_flow_that_is_too_large_to_draw_is_listed_all_the_same(
    client: Client, waiting: FlowRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catbird_django.admin.flows.MAX_DRAWN", 3)

    page = shown(client, page_url(waiting.flow))

    assert "Not drawn: it has more than 3 steps." in page
    assert "refund" in page


# Runs


def test_the_page_of_a_run_says_why_it_waits_and_how_its_steps_are(client: Client, waiting: FlowRun) -> None:
    """U4, F25."""
    page = shown(client, page_url(waiting))
    said = texts(page)

    assert "approve waits for a signal (who may give it: everybody)" in said
    assert 'data-status="waiting_for_signal"' in page
    assert "waiting for a signal" in said
    assert "red" in said
    assert "ada" in said
    assert 'class="catbird-graph graph-shrinks"' in page


def test_the_page_shows_what_each_step_received_and_returned(client: Client, waiting: FlowRun) -> None:
    """F5, U4."""
    client.post(signal_url(waiting), {"payload": APPROVAL})
    run_steps()

    page = shown(client, page_url(waiting))
    said = texts(page)

    assert "shipped 1" in said
    data = said[said.index("Data of the steps") :]
    assert "from validate" in data
    assert "&quot;total&quot;: 5000" in data
    assert "Why is it waiting?" not in said
    assert "its condition was not met" in said  # refund
    assert re.search(r"signaled .*approve", said)


def test_a_failed_run_names_the_step_and_shows_the_error(client: Client) -> None:
    """F18."""
    flow: Flow[Any, Any] = Flow("failing")

    @flow.step
    def divide(input: int) -> float:
        return 1 / input

    run = flow.run(0)
    run_steps()

    said = texts(shown(client, page_url(FlowRun.objects.get(pk=run.id))))

    assert "ZeroDivisionError division by zero in step divide" in said


@pytest.mark.parametrize("status", FlowStatus.values)
def test_a_run_of_any_status_has_a_page_and_a_line_in_the_list(client: Client, waiting: FlowRun, status: str) -> None:
    is_over = status in ("completed", "failed", "canceled", "expired")
    FlowRun.objects.update(
        status=status, output=1, error={"odd": [EVIL]}, finished_at=timezone.now() if is_over else None
    )

    for page in (shown(client, list_url("flowrun")), shown(client, page_url(waiting))):
        assert re.search(rf'class="catbird-badge" data-status="{status}"', page)
        assert EVIL not in page


@pytest.mark.parametrize("status", StepStatus.values)
def test_a_step_of_any_status_has_a_badge(status: str) -> None:
    assert f'data-status="{status}"' in badge(StepStatus(status))


def test_the_list_is_filtered_by_status_flow_queue_and_tag_and_searched(client: Client, waiting: FlowRun) -> None:
    """U3."""
    other = FlowRun.objects.get(pk=declare_orders("other", queue="slow").run(Order(2, 1.0)).id)
    other_url = page_url(other).split("?")[0]
    mine_url = page_url(waiting)

    for filters, is_mine, is_other in (
        ({"flow": "other"}, False, True),
        ({"queue": "slow"}, False, True),
        ({"status": "started"}, True, True),
        ({"status": "failed"}, False, False),
        ({"tag": "red"}, True, False),
        ({"q": "oth"}, False, True),
        ({"q": f"#{waiting.pk}"}, True, False),
        ({"older_than": str(other.pk)}, True, False),
    ):
        page = shown(client, list_url("flowrun"), **filters)
        assert ((f'href="{mine_url}' in page), (f'href="{other_url}' in page)) == (is_mine, is_other), filters


@pytest.mark.parametrize("parameter", ["input__id", "output", "started_by", "concurrency_key__startswith"])
def test_the_address_cannot_guess_at_columns(client: Client, waiting: FlowRun, parameter: str) -> None:
    """U7."""
    assert client.get(list_url("flowrun"), {parameter: "1"}).status_code == 400


def test_who_may_not_see_payloads_sees_the_life_of_a_run_and_nothing_it_carries(waiting: FlowRun) -> None:
    """U7."""
    FlowRun.objects.update(input={"secret": "S3CRET"}, headers={"a": "S3CRET"}, concurrency_key="S3CRET")
    waiting.step_runs.filter(step__name="validate").update(output="S3CRET")
    SignalDelivery.objects.create(
        flow_run_id=waiting.pk, step="approve", payload="S3CRET", actor="kim", verdict="malformed", at=timezone.now()
    )
    client = client_with("view_flowrun")

    page = shown(client, page_url(waiting))

    assert "S3CRET" not in page
    assert "ada" not in texts(page).split()
    assert "red" not in texts(page).split()
    assert "approve waits for a signal" in texts(page)
    assert "S3CRET" in shown(client_with("view_flowrun", "view_payload"), page_url(waiting))


def test_nobody_sees_pages_without_permission_and_nobody_changes_rows(client: Client, waiting: FlowRun) -> None:
    """U7."""
    stranger = client_with("view_task")
    for url in (list_url("flow"), list_url("flowrun"), page_url(waiting), page_url(waiting.flow)):
        assert stranger.get(url).status_code == 403
    for row in (waiting, waiting.flow):
        assert client.post(page_url(row), {"status": "completed"}).status_code == 403
        assert client.get(page_url(row).replace("change", "delete")).status_code == 403
    waiting.refresh_from_db()
    assert waiting.status == "started"


def test_the_list_costs_the_same_number_of_queries_however_many_runs(client: Client, waiting: FlowRun) -> None:
    """U3."""
    with CaptureQueriesContext(connection) as few:
        shown(client, list_url("flowrun"))
    declare_orders("other").run_many([Order(number, 1.0) for number in range(20)])

    with CaptureQueriesContext(connection) as many:
        shown(client, list_url("flowrun"))

    assert len(many) <= len(few) + 1
    assert not [query["sql"] for query in many if "COUNT(" in query["sql"]]


def test_nothing_on_the_pages_needs_inline_script_or_style(client: Client, waiting: FlowRun) -> None:
    """U8."""
    for url in (list_url("flow"), list_url("flowrun"), page_url(waiting), page_url(waiting.flow), signal_url(waiting)):
        page = shown(client, url)
        content = page[page.index('id="content"') :]
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\bsrc=)(?![^>]*application/json)", content), url


def test_what_rows_hold_is_escaped(client: Client, waiting: FlowRun) -> None:
    """U8."""
    FlowRun.objects.update(input=EVIL, started_by=EVIL, cancel_reason=EVIL, ending_since=timezone.now())
    waiting.step_runs.update(skip_message=EVIL)
    waiting.flow.steps.update(description=EVIL, handler=EVIL)
    StoredFlow.objects.update(description=EVIL)
    SignalDelivery.objects.create(
        flow_run_id=waiting.pk, step=EVIL, payload=EVIL, actor=EVIL, verdict="late", message=EVIL, at=timezone.now()
    )

    for url in (page_url(waiting), page_url(waiting.flow), list_url("flowrun"), list_url("flow")):
        page = shown(client, url)
        assert "<script>alert" not in page
        assert "<img src=x" not in page


# The signal


def test_a_signal_is_given_recorded_and_noted(client: Client, waiting: FlowRun, admin_user: User) -> None:
    """F12, U7."""
    assert f'href="{signal_url(waiting)}"' in shown(client, page_url(waiting))

    answer = client.post(signal_url(waiting), {"payload": APPROVAL}, follow=True)

    assert "The signal was given to approve." in answer.content.decode()
    given = SignalDelivery.objects.get()
    assert (given.verdict, given.actor, given.payload) == ("accepted", "admin", {"by": "kim", "ok": True})
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.change_message, entry.user) == (str(waiting.pk), "Signaled approve.", admin_user)
    assert "Give signal to" not in answer.content.decode()


@pytest.mark.parametrize(
    ("payload", "complaint", "verdicts"),
    [
        ("{", "This is not JSON", []),
        ("", "This field is required", []),
        ('{"by": 1, "ok": true}', "signal.by", ["malformed"]),
        ("null", "signal: ", ["malformed"]),
        ("[" * 10_000, "This is not JSON", []),
    ],
)
def test_a_payload_that_does_not_fit_is_shown_again_with_what_is_wrong(
    client: Client, waiting: FlowRun, payload: str, complaint: str, verdicts: list[str]
) -> None:
    """F12."""
    page = client.post(signal_url(waiting), {"payload": payload}).content.decode()

    assert complaint in page
    assert list(SignalDelivery.objects.values_list("verdict", flat=True)) == verdicts
    assert LogEntry.objects.count() == 0


def test_a_signal_that_comes_too_late_is_refused_in_words(client: Client, waiting: FlowRun) -> None:
    """F12."""
    client.post(signal_url(waiting), {"payload": APPROVAL})
    assert "another one would be refused" in shown(client, signal_url(waiting))

    answer = client.post(signal_url(waiting), {"payload": APPROVAL}, follow=True)

    assert "Refused: the signal was given before." in answer.content.decode()


def test_giving_signals_needs_its_permission(waiting: FlowRun) -> None:
    """U7."""
    viewer, signaler = client_with("view_flowrun"), client_with("send_signal")

    assert "Give signal" not in shown(viewer, page_url(waiting))
    assert viewer.post(signal_url(waiting), {"payload": APPROVAL}).status_code == 403
    assert signaler.post(signal_url(waiting), {"payload": APPROVAL}).status_code == 403  # of a run they may not see
    assert SignalDelivery.objects.count() == 0
    assert (
        client_with("view_flowrun", "send_signal").post(signal_url(waiting), {"payload": APPROVAL}).status_code == 302
    )


@pytest.mark.parametrize("step", ["ship", "nobody", "", EVIL])
def test_a_step_that_takes_no_signal_has_no_form(client: Client, waiting: FlowRun, step: str) -> None:
    url = reverse("admin:catbird_flowrun_signal", args=[waiting.pk])

    assert client.get(url, {"step": step}).status_code == 404
    assert client.get(url.replace(str(waiting.pk), "999999"), {"step": "approve"}).status_code == 404
    assert client.get(url.replace(str(waiting.pk), "9" * 30), {"step": "approve"}).status_code == 404


def test_the_form_shows_the_type_of_the_signal(client: Client) -> None:
    flow: Flow[Any, Any] = Flow("typed")

    @flow.step(signal=Signal(Approval, groups="managers", permission="shop.approve"))
    def decide(signal: Approval) -> bool:
        return signal.ok

    run = FlowRun.objects.get(pk=flow.run().id)

    assert "&quot;ok&quot;" in shown(client, signal_url(run, "decide"))
    said = texts(shown(client, page_url(run)))
    assert "who may give it: who has the permission shop.approve, the group managers" in said
