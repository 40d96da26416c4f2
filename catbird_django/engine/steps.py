"""`sql/steps.sql`, called from Python."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from catbird_django.engine.call import Function, columns
from catbird_django.engine.items import ItemClaim, ItemDelivery
from catbird_django.engine.tasks import Delivery, JsonText, LaneHead, LaneRequest, TaskClaim, _verdicts
from catbird_django.statuses import SettleVerdict

_SETTLE = {"step_run_ids": "bigint[]", "delivery_tokens": "uuid[]"}

FIND = Function("cb_find_steps", flows="text[]", steps="text[]", fingerprints="text[]")
FIND_LANES = Function(
    "cb_find_step_lanes",
    answering="queue, -step_id, priority, head_id, head_age, is_suspect",
    step_ids="bigint[]",
    queues="text[]",
)
CLAIM = Function(
    "cb_claim_steps",
    answering="""run_id, delivery_token::text, queue, -step_id, priority, input, headers, delivery_count, failure_count,
    lost_count, flow_run_id, outputs, signal, lists""",
    worker_id="bigint",
    lease="interval",
    queues="text[]",
    step_ids="bigint[]",
    priorities="integer[]",
    low_ids="bigint[]",
    limits="integer[]",
    suspect="boolean",
    all_events="boolean",
)
COMPLETE = Function(
    "cb_complete_steps",
    **_SETTLE,
    outputs="jsonb[]",
    notify="boolean",
    all_events="boolean",
    inline_places="integer[]",
    inline_steps="text[]",
    inline_outputs="jsonb[]",
)
COMPLETE_EARLY = Function("cb_complete_steps_early", **_SETTLE, outputs="jsonb[]", reasons="text[]", notify="boolean")
FAIL = Function("cb_fail_steps", **_SETTLE, errors="jsonb[]", retry_delays="interval[]", notify="boolean")
SKIP = Function("cb_skip_steps", **_SETTLE, reasons="text[]", notify="boolean")
RELEASE = Function("cb_release_steps", **_SETTLE, delays="interval[]", notify="boolean")
EXTEND = Function("cb_extend_steps", **_SETTLE, lease="interval")
FIND_LOCKED = Function("cb_find_locked_steps", step_run_ids="bigint[]")


class StepKey(NamedTuple):
    """A step as code knows it: the same name and fingerprint mean that it is called in the same way."""

    flow: str
    step: str
    fingerprint: str


class StoredStep(NamedTuple):
    """A step of one version of a flow."""

    id: int
    flow_id: int
    """The version."""
    is_inline: bool
    key: StepKey


class StepDelivery(NamedTuple):
    """A step run in the hands of a worker, and the proof of it; as `Delivery` is of a task's run."""

    run_id: int
    delivery_token: str


class StepClaim(NamedTuple):
    """A claimed step run: what to run, with what, how often it was tried. It begins as the claim of a task does."""

    run_id: int
    delivery: StepDelivery
    queue: str
    handler_id: int
    """The id of the step, negated: so no task has the same."""
    priority: int
    input: JsonText | None
    """Of the flow run, if the step takes it."""
    headers: JsonText | None
    delivery_count: int
    failure_count: int
    lost_count: int
    flow_run_id: int
    outputs: JsonText | None
    """Of the steps before it, by name; what was skipped is missing."""
    signal: JsonText | None
    lists: JsonText | None
    """Of the maps before it whose items it takes: their step runs, by name."""

    @property
    def attempt(self) -> int:
        return self.failure_count + self.lost_count + 1


Claim = TaskClaim | StepClaim | ItemClaim
AnyDelivery = Delivery | StepDelivery | ItemDelivery


class InlineOutput(NamedTuple):
    """What an inline step has returned that was run together with a claimed one (F6)."""

    place: int
    """The place of that one among the completions, from 0."""
    step: str
    output: JsonText


def find_steps(keys: Sequence[StepKey], *, using: str) -> list[StoredStep]:
    """Find the stored steps, of any version, that are called as these are; by id."""
    flows, steps, fingerprints = columns(keys, 3)
    rows = FIND.rows(using, flows=flows, steps=steps, fingerprints=fingerprints)
    return [StoredStep(step_id, flow_id, is_inline, keys[place - 1]) for step_id, flow_id, is_inline, place in rows]


def find_step_lanes(step_ids: Sequence[int], queues: Sequence[str] | None, *, using: str) -> list[LaneHead]:
    """Find the lanes of these steps and queues (None: all) that have due runs."""
    rows = FIND_LANES.rows(using, step_ids=list(step_ids), queues=None if queues is None else list(queues))
    return [LaneHead(*row) for row in rows]


def claim_steps(
    requests: Sequence[LaneRequest],
    *,
    worker_id: int,
    lease: timedelta,
    suspect: bool = False,
    all_events: bool = False,
    using: str,
) -> list[StepClaim]:
    """Claim due step runs of these lanes for a worker; with `suspect`, one that has lost its worker twice, if any."""
    rows = CLAIM.rows(
        using,
        worker_id=worker_id,
        lease=lease,
        queues=[request.lane.queue for request in requests],
        step_ids=[-request.lane.handler_id for request in requests],
        priorities=[request.lane.priority for request in requests],
        low_ids=[request.low_id for request in requests],
        limits=[request.limit for request in requests],
        suspect=suspect,
        all_events=all_events,
    )
    return [StepClaim._make((row[0], StepDelivery._make((row[0], row[1])), *row[2:])) for row in rows]


def complete_steps(
    completions: Sequence[tuple[StepDelivery, JsonText]],
    *,
    inline: Sequence[InlineOutput] = (),
    notify: bool,
    all_events: bool = False,
    using: str,
) -> list[SettleVerdict]:
    """Complete these steps, with what ran inline, and let their runs go on; say of each whether it was still ours."""
    ids, tokens = columns([delivery for delivery, _ in completions], 2)
    outputs = [output for _, output in completions]
    along: dict[str, Any] = {}
    if inline:
        along["inline_places"] = [one.place + 1 for one in inline]
        along["inline_steps"] = [one.step for one in inline]
        along["inline_outputs"] = [one.output for one in inline]
    return _verdicts(
        COMPLETE.rows(
            using,
            step_run_ids=ids,
            delivery_tokens=tokens,
            outputs=outputs,
            notify=notify,
            all_events=all_events,
            **along,
        )
    )


def complete_steps_early(
    endings: Sequence[tuple[StepDelivery, JsonText, str]], *, notify: bool, using: str
) -> list[SettleVerdict]:
    """Complete the runs of these steps, each with an output and for a reason; say of each whether it counted."""
    ids, tokens = columns([delivery for delivery, _, _ in endings], 2)
    outputs = [output for _, output, _ in endings]
    reasons = [reason for _, _, reason in endings]
    return _verdicts(
        COMPLETE_EARLY.rows(
            using, step_run_ids=ids, delivery_tokens=tokens, outputs=outputs, reasons=reasons, notify=notify
        )
    )


def fail_steps(
    failures: Sequence[tuple[StepDelivery, JsonText, timedelta | None]], *, notify: bool, using: str
) -> list[SettleVerdict]:
    """Report failed attempts, each with the delay of its retry (None: no retry); say what became of each, in order."""
    ids, tokens = columns([delivery for delivery, _, _ in failures], 2)
    errors = [error for _, error, _ in failures]
    delays = [delay for _, _, delay in failures]
    return _verdicts(
        FAIL.rows(using, step_run_ids=ids, delivery_tokens=tokens, errors=errors, retry_delays=delays, notify=notify)
    )


def skip_steps(skips: Sequence[tuple[StepDelivery, str]], *, notify: bool, using: str) -> list[SettleVerdict]:
    """Skip these steps as their handlers asked to, each for a reason; say of each whether it was still ours."""
    ids, tokens = columns([delivery for delivery, _ in skips], 2)
    reasons = [reason for _, reason in skips]
    return _verdicts(SKIP.rows(using, step_run_ids=ids, delivery_tokens=tokens, reasons=reasons, notify=notify))


def release_steps(
    releases: Sequence[tuple[StepDelivery, timedelta | None]], *, notify: bool, using: str
) -> list[SettleVerdict]:
    """Give these steps back, unfinished, to be run at once (None) or after a delay; say of each whether it was ours."""
    ids, tokens = columns([delivery for delivery, _ in releases], 2)
    delays = [delay for _, delay in releases]
    return _verdicts(RELEASE.rows(using, step_run_ids=ids, delivery_tokens=tokens, delays=delays, notify=notify))


def extend_steps(deliveries: Sequence[StepDelivery], *, lease: timedelta, using: str) -> list[SettleVerdict]:
    """Renew the leases of these steps; say of each, in order, whether it was still ours."""
    ids, tokens = columns(deliveries, 2)
    return _verdicts(EXTEND.rows(using, step_run_ids=ids, delivery_tokens=tokens, lease=lease))


def find_locked_steps(run_ids: Sequence[int], *, using: str) -> set[int]:
    """Find those of these steps that others have locked just now, or their flow runs."""
    return {run_id for (run_id,) in FIND_LOCKED.rows(using, step_run_ids=list(run_ids))}
