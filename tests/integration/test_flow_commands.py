"""X3: `catbird_run`, `catbird_signal`, `catbird_explain`, `catbird_cancel` and `catbird_status` about flows."""

from __future__ import annotations

import io
import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from catbird_django import Flow, task
from catbird_django.models import FlowRun, SignalDelivery, StepRun
from catbird_django.monitoring import flow_figures
from catbird_django.statuses import FlowStatus
from tests.flow_support import plan, start
from tests.flows import Order, declare_orders, run_steps
from tests.item_support import claim_items, complete_items, fail_items, map_over
from tests.support import register, until, working

pytestmark = pytest.mark.django_db(transaction=True)

LARGE = '{"id": 1, "total": 5000}'
APPROVAL = '{"by": "kim", "ok": true}'


@pytest.fixture
def orders() -> Flow[Order, str]:
    return declare_orders()


def say(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue().strip()


def complaint_of(*arguments: str) -> tuple[str, int]:
    with pytest.raises(CommandError) as caught:
        say(*arguments)
    return str(caught.value), caught.value.returncode


def test_a_flow_is_started_by_name_on_behalf_of_the_account(orders: Any) -> None:
    said = say("catbird_run", "order", "--input", LARGE, "--tag", "a", "--priority", "3")

    run = FlowRun.objects.get()
    assert said == f"run {run.pk}: started"
    assert (run.input, run.priority, run.started_by.split(":")[0]) == ({"id": 1, "total": 5000}, 3, "command")


def test_waiting_prints_the_output_or_why_there_is_none(orders: Any) -> None:
    small = '{"id": 2, "total": 5}'
    say("catbird_run", "order", "--input", small, "--idempotency-key", "two")
    run_steps()

    assert say("catbird_run", "order", "--input", small, "--idempotency-key", "two", "--wait", "5") == (
        '"shipped 2 without asking"'
    )
    assert "still started" in complaint_of("catbird_run", "order", "--input", LARGE, "--wait", "0.05")[0]


def test_a_failed_run_that_was_waited_for_says_in_which_step() -> None:
    flow: Flow[Any, Any] = Flow("halve")

    @flow.step
    def divide(input: int) -> float:
        return 1 / input

    out = io.StringIO()
    worker = threading.Thread(target=lambda: (until(FlowRun.objects.exists), run_steps(), connections.close_all()))
    worker.start()

    with pytest.raises(CommandError, match="failed in step 'divide': division by zero"):
        call_command("catbird_run", "halve", "--input", "0", "--wait", "20", "--format", "json", stdout=out)
    worker.join(timeout=20)

    told = json.loads(out.getvalue())
    assert (told["status"], told["error"]["step"]) == ("failed", "divide")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["orders"], "there is no task or flow named 'orders'; did you mean 'order'?"),
        (["order", "--input", '{"id": 1}'], "input.total"),
        (["order", "--input", "{"], "--input: not JSON"),
        (["order", "--input", LARGE, "--debounce-key", "k"], "debounce_key"),
        (["order", "--input", LARGE, "--priority", "101"], "priority: "),
        (["order", "--task"], "there is no task named 'order'"),
    ],
)
def test_what_cannot_be_started_is_refused_with_2(orders: Any, arguments: list[str], complaint: str) -> None:
    said, code = complaint_of("catbird_run", *arguments)

    assert complaint in said
    assert code == 2
    assert FlowRun.objects.count() == 0


def test_a_name_of_a_task_and_a_flow_must_be_told_apart() -> None:
    declare_orders("both")

    @task
    def both(input: Order) -> None: ...

    said, code = complaint_of("catbird_run", "both", "--input", LARGE)
    assert (said, code) == ("there are a task and a flow named 'both': say --task or --flow", 2)
    assert say("catbird_run", "both", "--flow", "--input", LARGE).endswith("started")
    assert say("catbird_run", "both", "--task", "--input", LARGE).endswith("queued")


def test_a_task_that_only_the_database_knows_counts_too(orders: Any) -> None:
    register("order")

    assert "say --task or --flow" in complaint_of("catbird_run", "order", "--input", LARGE)[0]


def test_a_signal_is_given_and_its_verdict_printed(orders: Any, tmp_path: Path) -> None:
    """F12."""
    run_id = str(orders.run(Order(1, 5000.0)).id)
    (tmp_path / "approval.json").write_text(APPROVAL)

    said = say("catbird_signal", run_id, "approve", "--payload-file", str(tmp_path / "approval.json"), "--actor", "kim")

    assert said == f"approve of run {run_id}: accepted"
    given = SignalDelivery.objects.get()
    assert (given.actor, given.payload) == ("kim", {"by": "kim", "ok": True})


def test_a_refused_signal_exits_with_1_and_a_bad_call_with_2(orders: Any) -> None:
    """F12."""
    run_id = str(orders.run(Order(1, 5000.0)).id)

    assert complaint_of("catbird_signal", run_id, "approve", "--payload", '{"by": 1}')[1] == 1
    assert complaint_of("catbird_signal", run_id, "ship", "--payload", APPROVAL) == (
        f"'ship' of run {run_id}: the step waits for no signal",
        1,
    )
    assert complaint_of("catbird_signal", run_id, "approve", "--payload", "{")[1] == 2
    assert complaint_of("catbird_signal", "0", "approve", "--payload", APPROVAL)[1] == 2
    assert complaint_of("catbird_signal", run_id, "approve", "--payload", "1", "--dedupe-id", "")[1] == 2
    assert SignalDelivery.objects.get(step="ship").actor.startswith("command")


def test_a_refusal_has_its_verdict_for_machines(orders: Any) -> None:
    run_id = orders.run(Order(1, 5000.0)).id
    out = io.StringIO()

    with pytest.raises(CommandError):
        call_command("catbird_signal", str(run_id), "ship", "--format", "json", stdout=out)

    assert json.loads(out.getvalue()) == {"run_id": run_id, "step": "ship", "verdict": "no_signal"}


def test_explain_says_what_a_run_waits_for(orders: Any) -> None:
    """F25."""
    handle = orders.run(Order(1, 5000.0))
    run_steps()

    assert say("catbird_explain", str(handle.id)).splitlines()[:2] == [
        f"run {handle.id}: started",
        "approve waits for a signal (who may give it: everybody)",
    ]
    told = json.loads(say("catbird_explain", str(handle.id), "--format", "json"))
    assert (told["status"], told["requirements"][0]["requirement"]) == ("started", "signal")
    handle.cancel()
    assert say("catbird_explain", str(handle.id)) == f"run {handle.id}: canceled"
    assert complaint_of("catbird_explain", "999999") == ("there is no flow run 999999 in database 'default'", 1)


def test_runs_of_flows_are_canceled_by_number_or_all_that_match(orders: Any) -> None:
    """F17."""
    first, second, third = orders.run_many([Order(1, 1.0), Order(2, 1.0), Order(3, 1.0)])
    other = declare_orders("other").run(Order(4, 1.0))

    assert say("catbird_cancel", "--flows", str(first.id), "--reason", "why") == f"{first.id}: canceled"
    assert (
        say("catbird_cancel", "--flows", "--all", "--flow", "order", "--yes", "--format", "json") == '{"canceled": 2}'
    )

    assert {handle.status() for handle in (first, second, third)} == {FlowStatus.CANCELED}
    assert other.status() is FlowStatus.STARTED
    assert FlowRun.objects.get(pk=first.id).cancel_reason == "why"
    assert complaint_of("catbird_cancel", "--flows", "999999")[0] == "999999: unknown"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--flows", "--all", "--task", "order", "--yes"],
        ["--flows", "--all", "--status", "queued", "--yes"],
        ["--all", "--flow", "order", "--yes"],
        ["--flows", "--all", "--flow", "nothing", "--yes"],
        ["--flows", "1", "--flow", "order"],
        ["--flows", "--all", "1", "--yes"],
        ["--flows"],
    ],
)
def test_options_of_cancel_that_contradict_each_other_cancel_nothing(orders: Any, arguments: list[str]) -> None:
    handle = orders.run(Order(1, 1.0))

    complaint_of("catbird_cancel", *arguments)

    assert handle.status() is FlowStatus.STARTED


def test_status_counts_runs_of_flows_and_steps_that_wait_for_people(orders: Any) -> None:
    """U1."""
    waiting, failed, _small = orders.run_many([Order(1, 5000.0), Order(2, 5000.0), Order(3, 5.0)])
    run_steps()
    FlowRun.objects.filter(pk=failed.id).update(status="failed", error={}, finished_at=timezone.now())
    declare_orders("idle")

    told = json.loads(say("catbird_status", "--format", "json"))

    assert told["flows"] == [
        {
            "flow": "order",
            "started": 1,
            "ending": 0,
            "work_due": 0,
            "work_held": 0,
            "waiting_for_people": 1,
            "completed_last_hour": 1,
            "failed_last_hour": 1,
        }
    ]
    text = say("catbird_status").splitlines()
    assert text[-2:] == [
        "flow   started  work due  work held  waiting for people  ending  done 1 h  failed 1 h",
        "order        1         0          0                   1       0         1           1",
    ]
    waiting.cancel()


def test_status_counts_steps_and_items_as_work() -> None:
    """F14, U1: what is due and what workers hold, by flow."""
    start(plan("numbers", map_over("input")), list(range(20)))
    run = start(plan("plain", {"name": "one"}, {"name": "other"}))
    claim_items(3)
    StepRun.objects.filter(flow_run=run, step__name="other").update(lost_count=2, delivery_count=2)

    told = json.loads(say("catbird_status", "--format", "json"))["flows"]

    assert [(row["flow"], row["work_due"], row["work_held"]) for row in told] == [("numbers", 17, 3), ("plain", 2, 0)]


def test_due_items_are_counted_by_index_and_no_further_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are."""
    start(plan("numbers", map_over("input")), list(range(20)))
    monkeypatch.setattr(flow_figures, "COUNT_LIMIT", 10)

    with CaptureQueriesContext(connection) as asked:
        [figures] = flow_figures.flow_figures(ended_within=timedelta(hours=1))

    assert figures.due_work == 10
    [counted] = [one["sql"] for one in asked if "COUNT(*)" in one["sql"] and '"cb_items"' in one["sql"]]
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        cursor.execute(f"EXPLAIN {counted}")
        assert "cb_items_claimable" in "".join(line for (line,) in cursor.fetchall())
        cursor.execute("RESET enable_seqscan")


def test_a_run_whose_output_is_a_list_prints_it() -> None:
    """F14a."""
    flow: Flow[Any, Any] = Flow("numbers", input=list[int])

    @flow.map(over="input", on_item_failure="collect")
    def halve(item: int) -> float:
        if item % 2:
            raise ValueError("odd")
        return item / 2

    with working():
        text = say("catbird_run", "numbers", "--input", "[4, 3]", "--wait", "20")
        told = json.loads(say("catbird_run", "numbers", "--input", "[8]", "--wait", "20", "--format", "json"))

    assert json.loads(text) == [2.0, {"index": 1, "type": "ValueError", "message": "odd"}]
    assert (told["status"], told["output"]) == ("completed", [4.0])


def test_explain_says_how_far_a_map_is() -> None:
    """F25."""
    run = start(plan("numbers", map_over("input", max_failed_items=None)), [1, 2, 3])
    claims = claim_items()
    complete_items(claims[:1])
    fail_items(claims[1:2])

    said = say("catbird_explain", str(run.pk)).splitlines()
    [unmet] = json.loads(say("catbird_explain", str(run.pk), "--format", "json"))["requirements"]

    waits = "double waits for its items: 1 of 3 have completed, 1 failed, and no worker that is alive has its handler"
    assert said == [f"run {run.pk}: started", waits]
    assert unmet["detail"] == {"spawned": 3, "completed": 1, "failed": 1, "canceled": 0, "workers": 0}
