"""Small things that tests of the flow engine say: plans by hand, runs, claims and completions by SQL functions."""

from __future__ import annotations

import json
from typing import Any

from catbird_django.definitions.conditions import parse_condition
from catbird_django.engine import flows, signals, steps
from catbird_django.engine.tasks import LaneRequest
from catbird_django.models import FlowRun, Step, StepRun
from catbird_django.statuses import FlowRunVerdict, SettleVerdict, SignalVerdict
from tests.support import LEASE, USING, register_worker


def plan(name: str, *given: dict[str, Any], **options: Any) -> dict[str, Any]:
    """A plan as `definitions/plan.py` makes it, from steps in an order in which they can run."""
    needed = {dependency for step in given for dependency in (*step.get("needs", ()), *step.get("after", ()))}
    final = [step["name"] for step in given if step["name"] not in needed]
    shape = {
        "name": name,
        "description": "",
        "queue": "default",
        "on_fail": "",
        "deadline": None,
        "retention": None,
        "outputs": final,
        "output_required": False,
        "final_count": len(final),
        "input_schema": {},
        "output_schema": {},
        "steps": [
            step_plan(position, step, is_final=step["name"] in final) for position, step in enumerate(given, start=1)
        ],
        **options,
    }
    return {**shape, "fingerprint": str(hash(json.dumps(shape)))}


def step_plan(position: int, given: dict[str, Any], *, is_final: bool) -> dict[str, Any]:
    step = {
        "kind": "step",
        "description": "",
        "handler": "",
        "fingerprint": "1",
        "over": "",
        "max_failed_items": 0,
        "is_inline": False,
        "is_atomic": False,
        "takes_lists": False,
        "takes_input": True,
        "takes_signal": "signal" in given,
        "condition": None,
        "condition_roots": [],
        "condition_needs_signal": False,
        "signal": None,
        "signal_schema": None,
        "may_skip": False,
        "on_unmet": "skip",
        "on_exhausted": "fail",
        "on_cancel": "stop",
        "max_retries": 0,
        "max_lost": 5,
        "delay": None,
        "deadline": None,
        "options": {},
        "argument_schemas": {},
        "output_schema": {},
        **{key: value for key, value in given.items() if key not in ("needs", "after", "optional")},
    }
    dependencies = [
        {"step": name, "parameter": name, "is_optional": name in given.get("optional", ()), "is_order_only": False}
        for name in given.get("needs", ())
    ] + [
        {"step": name, "parameter": None, "is_optional": True, "is_order_only": True} for name in given.get("after", ())
    ]
    count = len(dependencies)
    return {
        **step,
        "position": position,
        "is_final": is_final,
        "dependencies": dependencies,
        "dependency_count": count,
        "required_count": count + ("signal" in given),
    }


def when(text: str) -> dict[str, Any]:
    """A condition, parsed, and whether it needs the signal."""
    roots = {"input", "signal", "a", "b", "c", "d"}
    condition = parse_condition(text, roots=roots).as_json()
    return {
        "condition": condition,
        "condition_roots": sorted(root for root in roots if root in text),
        "condition_needs_signal": "signal" in text,
    }


def start(shape: dict[str, Any], value: Any = 1, **options: Any) -> FlowRun:
    flows.register_flows([shape], using=USING)
    [answer] = flows.run_flows(shape["name"], [json.dumps(value)], using=USING, **options)
    assert answer.verdict is FlowRunVerdict.STARTED
    return FlowRun.objects.get(pk=answer.run_id)


def claim(limit: int = 100) -> dict[str, steps.StepClaim]:
    """Claim everything that is due, by the names of the steps."""
    ids = list(Step.objects.values_list("pk", flat=True))
    heads = steps.find_step_lanes(ids, None, using=USING)
    lanes = [LaneRequest(head.lane, 0, limit) for head in heads]
    claims = steps.claim_steps(lanes, worker_id=register_worker(), lease=LEASE, using=USING)
    names = dict(Step.objects.values_list("pk", "name"))
    return {names[-one.handler_id]: one for one in claims}


def complete(**outputs: Any) -> dict[str, steps.StepClaim]:
    """Claim what is due and complete these steps with these outputs; all the due ones must be named."""
    claims = claim()
    assert set(claims) == set(outputs)
    done = [(claims[name].delivery, json.dumps(output)) for name, output in outputs.items()]
    assert set(steps.complete_steps(sorted(done), notify=False, using=USING)) <= {SettleVerdict.COMPLETED}
    return claims


def statuses(run: FlowRun) -> dict[str, str]:
    return {one.step.name: one.status for one in StepRun.objects.filter(flow_run=run).select_related("step")}


def ended(run: FlowRun) -> FlowRun:
    run.refresh_from_db()
    return run


def claim_all(count: int, worker_id: int | None = None) -> list[steps.StepClaim]:
    """Claim so many runs of each step."""
    ids = list(Step.objects.values_list("pk", flat=True))
    heads = steps.find_step_lanes(ids, None, using=USING)
    lanes = [LaneRequest(head.lane, 0, count) for head in heads]
    return steps.claim_steps(lanes, worker_id=worker_id or register_worker(), lease=LEASE, using=USING)


def signal(run: FlowRun, step: str, payload: Any, **options: Any) -> SignalVerdict:
    return signals.signal_flow(run.pk, step, json.dumps(payload), actor="kim", using=USING, **options).verdict
