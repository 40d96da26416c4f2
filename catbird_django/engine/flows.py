"""`sql/flows.sql`, called from Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from catbird_django.engine.call import Function
from catbird_django.engine.tasks import Json, JsonText
from catbird_django.statuses import FlowRunVerdict

REGISTER = Function("cb_register_flows", flows="jsonb")
RUN = Function(
    "cb_run_flows",
    flow="text",
    inputs="jsonb[]",
    fingerprint="text",
    queue="text",
    priority="integer",
    headers="jsonb",
    run_at="timestamp with time zone",
    delay="interval",
    concurrency_keys="text[]",
    idempotency_keys="text[]",
    expires_at="timestamp with time zone",
    tags="text[]",
    actor="text",
)
READ = Function("cb_read_flow_runs", run_ids="bigint[]")
READ_STEPS = Function("cb_read_step_runs", run_id="bigint")


class FlowRunAnswer(NamedTuple):
    """What became of one input of `run_flows`."""

    run_id: int | None
    verdict: FlowRunVerdict
    queue: str | None
    is_awaited: bool | None
    """Whether a worker of that queue slept; None when the run is not due yet."""


class FlowRunState(NamedTuple):
    """What became of a flow run so far."""

    run_id: int
    status: str
    output: JsonText | None
    error: JsonText | None


class StepRunState(NamedTuple):
    """What became of a step of a flow run so far."""

    step: str
    status: str
    output: JsonText | None
    error: JsonText | None


def register_flows(plans: Sequence[Mapping[str, Json]], *, using: str) -> list[int]:
    """Make these shapes known, and the current ones of their flows; return the ids of their versions, in order."""
    rows = REGISTER.rows(using, flows=json.dumps(list(plans)))
    return [flow_id for flow_id, _ in rows]


def run_flows(
    flow: str,
    inputs: Sequence[JsonText],
    *,
    fingerprint: str | None = None,
    queue: str | None = None,
    priority: int = 0,
    headers: JsonText | None = None,
    run_at: datetime | None = None,
    delay: timedelta | None = None,
    concurrency_keys: Sequence[str | None] | None = None,
    idempotency_keys: Sequence[str | None] | None = None,
    expires_at: datetime | None = None,
    tags: Sequence[str] | None = None,
    actor: str = "",
    using: str,
) -> list[FlowRunAnswer]:
    """Start one run per input, of the version with this fingerprint or the current one; say what became of each."""
    given: dict[str, Any] = {
        "fingerprint": fingerprint,
        "queue": queue,
        "headers": headers,
        "run_at": run_at,
        "delay": delay,
        "concurrency_keys": concurrency_keys and list(concurrency_keys),
        "idempotency_keys": idempotency_keys and list(idempotency_keys),
        "expires_at": expires_at,
        "tags": list(tags) if tags else None,
    }
    options = {name: value for name, value in given.items() if value is not None}
    rows = RUN.rows(using, flow=flow, inputs=list(inputs), priority=priority, actor=actor, **options)
    return [FlowRunAnswer(row[0], FlowRunVerdict(row[1]), row[2], row[3]) for row in rows]


def read_flow_run(run_id: int, *, using: str) -> FlowRunState | None:
    """Read what became of a run; None when there is no such run."""
    rows = READ.rows(using, run_ids=[run_id])
    return FlowRunState(*rows[0]) if rows else None


def read_step_runs(run_id: int, *, using: str) -> list[StepRunState]:
    """Read what became of the steps of a run, in the order of the flow."""
    return [StepRunState(*row) for row in READ_STEPS.rows(using, run_id=run_id)]
