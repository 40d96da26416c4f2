"""F12, F17, F20, F21, F25, F26: flows as an application starts, signals, cancels and asks about them."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from django.utils import timezone

from catbird_django import (
    DefinitionError,
    Flow,
    FlowFailed,
    FlowFailure,
    FlowHandle,
    InvalidOption,
    PayloadError,
    RunCanceled,
    RunNotFinished,
    RunNotFound,
    UnknownName,
    WaitInTransaction,
    WaitTimeout,
    acancel_flow,
    aretry_flow,
    arun_flow,
    cancel_flow,
    retry_flow,
    run_flow,
    task,
)
from catbird_django.apps import register_after_migrate
from catbird_django.client.registration import register_flows, register_tasks
from catbird_django.definitions.registry import registry
from catbird_django.models import Flow as StoredFlow
from catbird_django.models import FlowRun, Lease, RunTag, Step, StepRun, TaskRun
from catbird_django.statuses import FlowStatus, StepStatus
from tests.flow_support import claim_all
from tests.flows import Approval, Check, Order, declare_orders, run_steps
from tests.support import until, until_nobody_listens

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_example_of_the_specification_ends_in_its_three_ways() -> None:
    """SPEC 4, F12: the signal may come before anything has run."""
    orders = declare_orders()
    approved, refused, small = orders.run_many([Order(1, 5000.0), Order(2, 5000.0), Order(3, 5.0)])

    approved.signal("approve", Approval(by="kim", ok=True))
    refused.signal("approve", {"by": "kim", "ok": False})
    run_steps()

    assert approved.wait(timeout=5) == "shipped 1"
    assert refused.wait(timeout=5) == "refunded 2"
    assert small.wait(timeout=5) == "shipped 3 without asking"
    assert small.steps() == {
        "validate": StepStatus.COMPLETED,
        "approve": StepStatus.SKIPPED,
        "ship": StepStatus.COMPLETED,
        "refund": StepStatus.SKIPPED,
    }


def test_a_run_begins_and_vanishes_with_the_transaction_of_its_caller() -> None:
    """R3, F21: registered in that transaction too, and again by the next run."""
    orders = declare_orders()

    with transaction.atomic():
        orders.run(Order(1, 1.0))
        transaction.set_rollback(True)
    assert (StoredFlow.objects.count(), FlowRun.objects.count(), StepRun.objects.count()) == (0, 0, 0)

    handle = orders.run(Order(1, 1.0))
    assert handle.status() is FlowStatus.STARTED
    assert StoredFlow.objects.get().version == 1


def test_the_output_is_typed_for_who_has_the_flow_and_json_for_who_has_the_id() -> None:
    """F8, T5."""
    flow: Flow[Order, Check] = Flow("check_order")

    @flow.step
    def check(input: Order) -> Check:
        return Check(total=input.total)

    handle = flow.run({"id": 1, "total": 2})
    run_steps()

    assert handle.wait(timeout=5) == Check(total=2.0)
    assert FlowHandle(handle.id).wait(timeout=5) == {"total": 2.0}
    assert repr(handle) == f"<FlowHandle check_order {handle.id}>"
    with pytest.raises(RunNotFound, match="no flow run 999999"):
        FlowHandle(999_999).status()
    with pytest.raises(RunNotFound):
        FlowHandle(999_999).steps()


def test_a_failed_run_says_which_step_failed_and_of_what() -> None:
    """F18, T5."""
    flow: Flow[Any, Any] = Flow("failing")

    @flow.step
    def divide(input: int) -> float:
        return 1 / input

    handle = flow.run(0)
    run_steps()

    with pytest.raises(FlowFailed, match=f"run {handle.id} failed in step 'divide': division by zero") as caught:
        handle.wait(timeout=5)
    assert (caught.value.error["step"], caught.value.error["type"]) == ("divide", "ZeroDivisionError")
    assert caught.value.run_id == handle.id


def test_waiting_obeys_its_timeout_and_refuses_transactions() -> None:
    """T5."""
    handle = declare_orders().run(Order(1, 1.0))

    with pytest.raises(WaitTimeout, match="still started"):
        handle.wait(timeout=0.05)
    with transaction.atomic(), pytest.raises(WaitInTransaction):
        handle.wait(timeout=1)


def test_a_waiting_caller_is_told_without_polling(settings: Any) -> None:
    """T5, R9."""
    settings.CATBIRD = {"POLL_INTERVAL": 60}
    until_nobody_listens()
    handle = declare_orders().run(Order(1, 1.0))
    answers: list[str] = []
    waiter = threading.Thread(target=lambda: (answers.append(handle.wait(timeout=30)), connections.close_all()))
    waiter.start()
    until(Lease.objects.filter(name="watched").exists)

    run_steps()
    waiter.join(timeout=20)

    assert answers == ["shipped 1 without asking"]


async def test_async_twins() -> None:
    """Section 16."""
    orders = declare_orders()
    handle = await orders.arun(Order(1, 5000.0))
    [other] = await orders.arun_many([Order(2, 5000.0)])
    by_name = await arun_flow("order", {"id": 3, "total": 5})

    await handle.asignal("approve", Approval(by="kim", ok=True))
    assert await other.acancel("no") is FlowStatus.CANCELED
    assert await acancel_flow(other.id) is FlowStatus.CANCELED
    assert {one.requirement for one in await handle.aexplain()} == {"dependency", "worker"}
    again = await other.aretry()
    assert (await aretry_flow(other.id)).id not in {again.id, other.id}
    await asyncio.to_thread(lambda: (run_steps(), connections.close_all()))

    assert await handle == "shipped 1"
    assert await by_name.await_(timeout=5) == "shipped 3 without asking"
    assert await again.astatus() is FlowStatus.STARTED
    assert (await again.asteps())["approve"] is StepStatus.WAITING_FOR_SIGNAL


def test_options_go_to_the_run_and_its_steps() -> None:
    """F20, T4."""
    handle = declare_orders().run(
        Order(1, 1.0),
        queue="mail",
        priority=7,
        headers={"a": 1},
        tags=["red"],
        delay=timedelta(hours=1),
        expires_at=timezone.now() + timedelta(days=1),
        actor="kim\x00",
    )

    run = FlowRun.objects.get(pk=handle.id)
    assert (run.queue, run.priority, run.headers, run.started_by) == (
        "mail",
        7,
        {"a": 1},
        "kim\N{REPLACEMENT CHARACTER}",
    )
    assert set(run.step_runs.values_list("queue", "priority")) == {("mail", 7)}
    assert run.step_runs.get(step__name="validate").visible_at > timezone.now() + timedelta(minutes=50)
    assert list(RunTag.objects.values_list("run_kind", "run_id", "tag")) == [("flow", handle.id, "red")]


def test_a_key_gives_the_handle_of_the_run_that_has_it() -> None:
    """T4a."""
    orders = declare_orders()
    first = orders.run(Order(1, 1.0), concurrency_key="k")

    assert orders.run(Order(2, 1.0), concurrency_key="k").id == first.id
    run_steps()
    assert orders.run(Order(2, 1.0), concurrency_key="k").id != first.id


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"queue": "No Queue"}, "queue: "),
        ({"priority": 101}, "priority: "),
        ({"headers": []}, "headers: "),
        ({"delay": -1}, "delay: "),
        ({"run_at": "tomorrow"}, "run_at: "),
        ({"expires_at": 5}, "expires_at: "),
        ({"tags": [""]}, "tags: "),
        ({"concurrency_key": "a", "idempotency_key": "b"}, "concurrency_key: "),
        ({"idempotency_key": "\x00"}, "idempotency_key: "),
        ({"actor": 5}, "actor: "),
        ({"actor": None}, "actor: "),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(options: Any, complaint: str) -> None:
    """T4, F20."""
    orders = declare_orders()

    with transaction.atomic():
        with pytest.raises(InvalidOption, match=f"^{complaint}"):
            orders.run(Order(1, 1.0), **options)
        assert FlowRun.objects.count() == 0  # the caller's transaction is still good


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"id": 1}, "input.total"),
        ({"id": "one", "total": 1}, "input.id"),
        ({"id": 1, "total": float("nan")}, "input.total"),
        (None, "input"),
        ("\ud800", "input"),
        (object(), "input"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_by_field(given: Any, field: str) -> None:
    """T2a, R11."""
    orders = declare_orders()

    with pytest.raises(PayloadError) as caught:
        orders.run(given)
    with pytest.raises(PayloadError):
        run_flow("order", given)

    assert caught.value.path == field
    assert FlowRun.objects.count() == 0


def test_unknown_options_and_keys_of_many_are_refused() -> None:
    orders = declare_orders()

    with pytest.raises(TypeError, match="debounce_key"):
        orders.run(Order(1, 1.0), debounce_key="x")  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match="a key names one run"):
        orders.run_many([Order(1, 1.0)], concurrency_key="x")
    assert orders.run_many([]) == []


def test_a_flow_that_cannot_work_is_refused_at_its_first_run() -> None:
    """F2."""
    flow: Flow[Any, Any] = Flow("empty")

    with pytest.raises(DefinitionError, match="no step"):
        flow.run(1)
    with pytest.raises(DefinitionError):
        run_flow("empty", 1)


def test_a_flow_of_other_processes_is_run_by_name() -> None:
    """Section 16: `run_flow`."""
    orders = declare_orders()
    register_flows([orders.definition], using="default")
    registry.flows.clear()

    handle = run_flow("order", {"id": 1, "total": 1})

    assert handle.status() is FlowStatus.STARTED
    with pytest.raises(UnknownName, match="no flow named 'orders'"):
        run_flow("orders", 1)


def test_registering_a_flow_again_changes_nothing_and_another_shape_is_another_version() -> None:
    """F21."""
    orders = declare_orders()
    first = register_flows([orders.definition], using="default")
    assert register_flows([orders.definition], using="default") == first == {"order": StoredFlow.objects.get().pk}
    registered_at = StoredFlow.objects.get().registered_at

    registry.flows.clear()
    changed = declare_orders(description="Other words.")
    second = register_flows([changed.definition], using="default")

    assert StoredFlow.objects.get(version=1).registered_at == registered_at
    assert second == {"order": StoredFlow.objects.get(version=2).pk}
    assert register_flows([], using="default") == {}


def test_a_run_is_of_the_version_that_its_caller_declares() -> None:
    """F21: not of one that another process has registered since."""
    orders = declare_orders()
    orders.run(Order(1, 1.0))
    registry.flows.clear()
    register_flows([declare_orders(description="Newer.").definition], using="default")

    handle = orders.run(Order(2, 1.0))

    assert FlowRun.objects.get(pk=handle.id).flow.version == 1
    assert FlowRun.objects.get(pk=run_flow("order", {"id": 3, "total": 1}).id).flow.version == 2


def test_steps_are_stored_with_a_fingerprint_and_the_losses_that_settings_allow(settings: Any) -> None:
    """F21, T7a."""
    settings.CATBIRD = {"MAX_LOST": 9}
    orders = declare_orders()

    orders.run(Order(1, 1.0))

    stored = {step.name: step for step in Step.objects.all()}
    assert stored["ship"].fingerprint == orders.definition.plan.step("ship").fingerprint != ""
    assert {step.max_lost for step in stored.values()} == {9}


def test_migrating_registers_the_flows_that_can_work() -> None:
    """F21: at post_migrate; a flow that cannot work is left to the checks."""
    declare_orders()
    Flow("empty")

    register_after_migrate(using="default")

    assert list(StoredFlow.objects.values_list("name", flat=True)) == ["order"]


def test_cancel_ends_a_run_that_waits_and_tells_its_waiter() -> None:
    """F17."""
    handle = declare_orders().run(Order(1, 5000.0))
    run_steps()

    assert handle.cancel("changed my mind\x00", actor="kim") is FlowStatus.CANCELED
    assert cancel_flow(handle.id) is FlowStatus.CANCELED  # again: nothing changes

    run = FlowRun.objects.get(pk=handle.id)
    assert (run.cancel_reason.rstrip("\N{REPLACEMENT CHARACTER}"), run.canceled_by) == ("changed my mind", "kim")
    with pytest.raises(RunCanceled):
        handle.wait(timeout=1)
    with pytest.raises(RunNotFound):
        cancel_flow(999_999)


def test_cancel_waits_for_a_handler_that_runs_and_leaves_what_has_ended() -> None:
    """F17."""
    orders = declare_orders()
    running, done = orders.run(Order(1, 1.0)), orders.run(Order(2, 1.0))
    claim_all(10)

    assert running.cancel() is FlowStatus.CANCELING
    FlowRun.objects.filter(pk=done.id).update(status="completed", output="x", finished_at=timezone.now())
    assert done.cancel() is FlowStatus.COMPLETED


def test_retry_starts_the_whole_flow_anew_and_knows_its_origin() -> None:
    """F26, T13."""
    orders = declare_orders()
    old = orders.run(Order(1, 5000.0), idempotency_key="order-1", priority=3)
    with pytest.raises(RunNotFinished):
        old.retry()
    old.cancel()

    new = old.retry(actor="kim")

    run = FlowRun.objects.get(pk=new.id)
    assert (run.origin_id, run.role, run.started_by, run.priority) == (old.id, "retry", "kim", 3)
    assert run.idempotency_key is None
    new.signal("approve", Approval(by="kim", ok=True))
    run_steps()
    assert new.wait(timeout=5) == "shipped 1"
    assert retry_flow(old.id).id != new.id
    with pytest.raises(RunNotFound):
        retry_flow(999_999)


def test_explain_says_what_each_step_waits_for_in_words_and_as_data() -> None:
    """F25."""
    orders = declare_orders()
    handle = orders.run(Order(1, 5000.0))
    first, *_ = handle.explain()
    assert str(first) == "validate is queued in 'default', and no worker that is alive has its handler"

    run_steps()

    said = {str(one) for one in handle.explain()}
    assert said == {
        "approve waits for a signal (who may give it: everybody)",
        "ship waits for approve, which is waiting for signal",
        "refund waits for approve, which is waiting for signal",
    }
    assert handle.explain()[0].as_json() == {
        "step": "approve",
        "status": "waiting_for_signal",
        "requirement": "signal",
        "subject": "approve",
        "detail": {
            "permission": "",
            "groups": [],
            "users": [],
            "quorum": 1,
            "given": 0,
            "due": None,
            "escalated_to": None,
        },
    }
    handle.cancel()
    assert handle.explain() == []
    with pytest.raises(RunNotFound):
        FlowHandle(999_999).explain()


def test_the_on_fail_task_is_told_what_failed_and_reads_what_was_done() -> None:
    """F18."""

    @task
    def answer(input: FlowFailure[Order]) -> None: ...

    flow: Flow[Order, Any] = Flow("halves", on_fail=answer)

    @flow.step
    def halve(input: Order) -> Check:
        return Check(input.total / 2)

    @flow.step
    def fail(halve: Check) -> None:
        raise ValueError(f"{halve.total} is too much")

    register_tasks([answer.definition], using="default")
    handle = flow.run(Order(1, 10.0))
    run_steps()

    stored = TaskRun.objects.get(task__name="answer")
    failure = answer.definition.input_codec.decode(json.dumps(stored.input), name="input")
    assert (failure.run_id, failure.flow, failure.step, failure.input) == (handle.id, "halves", "fail", Order(1, 10.0))
    assert failure.step_input == {"halve": {"total": 5.0}}
    assert failure.error.message == "5.0 is too much"
    assert failure.output_of("halve") == Check(5.0)
    with pytest.raises(UnknownName, match="it is failed"):
        failure.output_of("fail")
    with pytest.raises(UnknownName, match="is unknown"):
        failure.output_of("nothing")
    registry.flows.clear()
    assert failure.output_of("halve") == {"total": 5.0}
