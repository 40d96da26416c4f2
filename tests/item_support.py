"""Small things that tests of maps say: flows with maps by hand, items claimed and completed by SQL functions."""

from __future__ import annotations

import json
from typing import Any

from catbird_django.engine import items, steps
from catbird_django.engine.flows import read_flow_run
from catbird_django.engine.tasks import LaneRequest
from catbird_django.models import FlowRun, Item, Step, StepRun
from catbird_django.statuses import SettleVerdict
from tests.support import LEASE, USING, register_worker


def map_over(source: str, name: str = "double", **options: Any) -> dict[str, Any]:
    """A map over a step of that name, or over the input."""
    needs = {} if source == "input" else {"needs": [source]}
    return {"name": name, "kind": "map", "over": source, "takes_input": False, **needs, **options}


def claim_items(count: int = 1000, worker_id: int | None = None) -> list[items.ItemClaim]:
    """Claim so many items of each map, in the order of their ids."""
    ids = list(Step.objects.filter(kind="map").values_list("pk", flat=True))
    heads = steps.find_step_lanes(ids, None, using=USING)
    lanes = [LaneRequest(head.lane, 0, count) for head in heads]
    claims = items.claim_items(lanes, worker_id=worker_id or register_worker(), lease=LEASE, using=USING)
    return sorted(claims)


def complete_items(claims: list[items.ItemClaim], *outputs: Any) -> list[SettleVerdict]:
    """Complete these items: with these outputs, or each with twice its element."""
    values = outputs or [2 * json.loads(claim.item) for claim in claims]
    done = [(claim.delivery, json.dumps(value)) for claim, value in zip(claims, values, strict=True)]
    return items.complete_items(done, notify=False, using=USING)


def fail_items(claims: list[items.ItemClaim], *, retry_in: Any = None) -> list[SettleVerdict]:
    error = json.dumps({"type": "ValueError", "message": "no good", "traceback": ""})
    return items.fail_items([(claim.delivery, error, retry_in) for claim in claims], notify=False, using=USING)


def item_statuses(run: FlowRun, step: str = "double") -> list[str]:
    return list(
        Item.objects.filter(flow_run_id=run.pk, step__name=step).order_by("index").values_list("status", flat=True)
    )


def map_run(run: FlowRun, step: str = "double") -> StepRun:
    return StepRun.objects.get(flow_run=run, step__name=step)


def counts(run: FlowRun, step: str = "double") -> tuple[int | None, int, int, int]:
    """Spawned, completed, failed, canceled."""
    one = map_run(run, step)
    return one.items_spawned, one.items_completed, one.items_failed, one.items_canceled


def output_of(run: FlowRun) -> Any:
    state = read_flow_run(run.pk, using=USING)
    assert state is not None
    return None if state.output is None else json.loads(state.output)
