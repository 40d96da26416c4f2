"""`sql/tasks.sql`, called from Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from catbird_django.engine.call import Function, columns
from catbird_django.statuses import RunVerdict, SettleVerdict

JsonText = str
Json = Any  # what json.dumps takes

_SETTLE = {"run_ids": "bigint[]", "delivery_tokens": "uuid[]"}

REGISTER = Function("cb_register_tasks", tasks="jsonb")
RUN = Function(
    "cb_run_tasks",
    task="text",
    inputs="jsonb[]",
    queue="text",
    priority="integer",
    headers="jsonb",
    run_at="timestamp with time zone",
    delay="interval",
    concurrency_keys="text[]",
    idempotency_keys="text[]",
    debounce_keys="text[]",
    expires_at="timestamp with time zone",
    tags="text[]",
    all_events="boolean",
)
RUN_ONE = Function("cb_run_task", task="text", input="jsonb")
FIND_LANES = Function("cb_find_task_lanes", task_ids="bigint[]", queues="text[]")
# A token as text: the driver makes it in no time, unlike a UUID.
_CLAIMED = """run_id, delivery_token::text, queue, task_id, priority, input, headers, delivery_count, failure_count,
    lost_count"""
CLAIM = Function(
    "cb_claim_tasks",
    answering=_CLAIMED,
    worker_id="bigint",
    lease="interval",
    queues="text[]",
    task_ids="bigint[]",
    priorities="integer[]",
    low_ids="bigint[]",
    limits="integer[]",
    all_events="boolean",
)
CLAIM_SUSPECT = Function(
    "cb_claim_suspect_tasks",
    answering=_CLAIMED,
    worker_id="bigint",
    lease="interval",
    task_ids="bigint[]",
    queues="text[]",
    all_events="boolean",
)
COMPLETE = Function(
    "cb_complete_tasks", **_SETTLE, outputs="jsonb[]", notify="boolean", all_events="boolean", brief="boolean"
)
FAIL = Function("cb_fail_tasks", **_SETTLE, errors="jsonb[]", retry_delays="interval[]", notify="boolean")
RELEASE = Function("cb_release_tasks", **_SETTLE, delays="interval[]", notify="boolean")
EXTEND = Function("cb_extend_tasks", **_SETTLE, lease="interval")
FIND_LOCKED = Function("cb_find_locked_tasks", run_ids="bigint[]")
READ = Function("cb_read_task_runs", run_ids="bigint[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A task as it is stored; the fields are columns of `cb_tasks`."""

    name: str
    queue: str
    description: str
    handler: str
    max_retries: int
    max_lost: int
    condition: Json = None
    on_fail: str = ""
    on_cancel: str = "stop"
    retention: str | None = None
    """As PostgreSQL writes an interval."""
    options: Mapping[str, Json] = field(default_factory=dict)
    input_schema: Json = None
    output_schema: Json = None
    fingerprint: str


class RunAnswer(NamedTuple):
    """What became of one input of `run_tasks`."""

    run_id: int | None
    verdict: RunVerdict
    queue: str | None
    is_awaited: bool | None
    """Whether a worker of that queue slept; None when the run is not due yet."""


class Delivery(NamedTuple):
    """A run in the hands of a worker, and the proof of it.

    The token is text: unlike a UUID it knows its hash, and deliveries are looked up all the time.
    """

    run_id: int
    delivery_token: str


class Lane(NamedTuple):
    """The due runs of one handler in one queue at one priority.

    A number names a handler: it is the id of a task, or that of a step (`engine/steps.py`), negated.
    """

    queue: str
    handler_id: int
    priority: int


class LaneHead(NamedTuple):
    """A lane that has due runs, and the oldest of them; or, apart from it, one of suspect runs (T7a)."""

    queue: str
    handler_id: int
    priority: int
    head_id: int
    head_age: float = 0.0
    """How many seconds ago it was queued. Unlike ids, ages of runs of two kinds compare."""
    is_suspect: bool = False
    breaker: str | None = None
    """'open' or 'half_open' when the task's circuit breaker is (T9)."""
    rests_for: float | None = None
    """How many seconds the breaker keeps everything back, as far as we know; None when it does not."""

    @property
    def lane(self) -> Lane:
        return Lane(self.queue, self.handler_id, self.priority)


class LaneRequest(NamedTuple):
    """How many runs to claim from a lane, beginning at its low-water mark."""

    lane: Lane
    low_id: int
    limit: int


class TaskClaim(NamedTuple):
    """A claimed run: what to run, with what, how often it was tried."""

    run_id: int
    delivery: Delivery
    queue: str
    handler_id: int
    priority: int
    input: JsonText
    headers: JsonText | None
    delivery_count: int
    failure_count: int
    lost_count: int

    @property
    def attempt(self) -> int:
        return self.failure_count + self.lost_count + 1


class TaskRunState(NamedTuple):
    """What became of a run so far."""

    run_id: int
    status: str
    output: JsonText | None
    error: JsonText | None


def register_tasks(tasks: Sequence[TaskRow], *, using: str) -> list[int]:
    """Make these tasks known, or bring them up to date; return their ids, in order."""
    rows = REGISTER.rows(using, tasks=json.dumps([asdict(task) for task in tasks]))
    return [task_id for (task_id,) in rows]


def run_tasks(
    task: str,
    inputs: Sequence[JsonText],
    *,
    queue: str | None = None,
    priority: int = 0,
    headers: JsonText | None = None,
    run_at: datetime | None = None,
    delay: timedelta | None = None,
    concurrency_keys: Sequence[str | None] | None = None,
    idempotency_keys: Sequence[str | None] | None = None,
    debounce_keys: Sequence[str | None] | None = None,
    expires_at: datetime | None = None,
    tags: Sequence[str] | None = None,
    all_events: bool = False,
    using: str,
) -> list[RunAnswer]:
    """Queue one run per input; say what became of each, in order."""
    given = {
        "queue": queue,
        "headers": headers,
        "run_at": run_at,
        "delay": delay,
        "concurrency_keys": concurrency_keys and list(concurrency_keys),
        "idempotency_keys": idempotency_keys and list(idempotency_keys),
        "debounce_keys": debounce_keys and list(debounce_keys),
        "expires_at": expires_at,
        "tags": list(tags) if tags else None,
        "all_events": all_events or None,
    }
    # Most runs have none of these, and every argument takes its time to be sent, read and planned.
    options = {name: value for name, value in given.items() if value is not None}
    if len(inputs) == 1 and not options and not priority:
        rows = RUN_ONE.rows(using, task=task, input=inputs[0])
    else:
        rows = RUN.rows(using, task=task, inputs=list(inputs), priority=priority, **options)
    return [RunAnswer._make((row[0], _RUN_VERDICTS[row[1]], row[2], row[3])) for row in rows]


_RUN_VERDICTS = {str(verdict): verdict for verdict in RunVerdict}  # calling an enum takes ten times as long


def find_task_lanes(task_ids: Sequence[int], queues: Sequence[str] | None, *, using: str) -> list[LaneHead]:
    """Find the lanes of these tasks and queues (None: all) that have due runs."""
    rows = FIND_LANES.rows(using, task_ids=list(task_ids), queues=None if queues is None else list(queues))
    return [LaneHead(*row) for row in rows]


def claim_tasks(
    requests: Sequence[LaneRequest], *, worker_id: int, lease: timedelta, all_events: bool = False, using: str
) -> list[TaskClaim]:
    """Claim due runs of these lanes for a worker."""
    rows = CLAIM.rows(
        using,
        worker_id=worker_id,
        lease=lease,
        queues=[request.lane.queue for request in requests],
        task_ids=[request.lane.handler_id for request in requests],
        priorities=[request.lane.priority for request in requests],
        low_ids=[request.low_id for request in requests],
        limits=[request.limit for request in requests],
        all_events=all_events,
    )
    return _claims(rows)


def claim_suspect_task(
    task_ids: Sequence[int],
    queues: Sequence[str] | None,
    *,
    worker_id: int,
    lease: timedelta,
    all_events: bool = False,
    using: str,
) -> TaskClaim | None:
    """Claim one due run that has lost its worker twice, of these tasks and queues (None: all), if there is one."""
    rows = CLAIM_SUSPECT.rows(
        using,
        worker_id=worker_id,
        lease=lease,
        task_ids=list(task_ids),
        queues=None if queues is None else list(queues),
        all_events=all_events,
    )
    return next(iter(_claims(rows)), None)


def _claims(rows: Sequence[tuple[Any, ...]]) -> list[TaskClaim]:
    """The claims of one call, which all have the same token. By `_make`: calling the class takes twice as long."""
    if not rows:
        return []
    token = rows[0][1]
    return [TaskClaim._make((row[0], Delivery._make((row[0], token)), *row[2:])) for row in rows]


def complete_tasks(
    completions: Sequence[tuple[Delivery, JsonText]], *, notify: bool, all_events: bool = False, using: str
) -> list[SettleVerdict]:
    """Complete these runs with their outputs; say of each, in order, whether it was still ours."""
    rows = COMPLETE.rows(
        using,
        run_ids=[delivery[0] for delivery, _ in completions],
        delivery_tokens=[delivery[1] for delivery, _ in completions],
        outputs=[output for _, output in completions],
        notify=notify,
        all_events=all_events,
        brief=True,
    )
    return _verdicts(rows) if rows else [SettleVerdict.COMPLETED] * len(completions)


def fail_tasks(
    failures: Sequence[tuple[Delivery, JsonText, timedelta | None]], *, notify: bool, using: str
) -> list[SettleVerdict]:
    """Report failed attempts, each with the delay of its retry (None: no retry); say what became of each, in order."""
    run_ids, tokens = columns([delivery for delivery, _, _ in failures], 2)
    rows = FAIL.rows(
        using,
        run_ids=run_ids,
        delivery_tokens=tokens,
        errors=[error for _, error, _ in failures],
        retry_delays=[delay for _, _, delay in failures],
        notify=notify,
    )
    return _verdicts(rows)


def release_tasks(
    releases: Sequence[tuple[Delivery, timedelta | None]], *, notify: bool, using: str
) -> list[SettleVerdict]:
    """Give these runs back, unfinished, to be run at once (None) or after a delay; say of each whether it was ours."""
    run_ids, tokens = columns([delivery for delivery, _ in releases], 2)
    delays = [delay for _, delay in releases]
    return _verdicts(RELEASE.rows(using, run_ids=run_ids, delivery_tokens=tokens, delays=delays, notify=notify))


def extend_tasks(deliveries: Sequence[Delivery], *, lease: timedelta, using: str) -> list[SettleVerdict]:
    """Renew the leases of these runs, as far as they are not locked; say of each, in order, whether it is ours."""
    run_ids, tokens = columns(deliveries, 2)
    return _verdicts(EXTEND.rows(using, run_ids=run_ids, delivery_tokens=tokens, lease=lease))


def find_locked_tasks(run_ids: Sequence[int], *, using: str) -> set[int]:
    """Find those of these runs that others have locked just now."""
    return {run_id for (run_id,) in FIND_LOCKED.rows(using, run_ids=list(run_ids))}


def read_task_run(run_id: int, *, using: str) -> TaskRunState | None:
    """Read what became of a run; None when there is no such run."""
    rows = READ.rows(using, run_ids=[run_id])
    return TaskRunState(*rows[0]) if rows else None


_VERDICTS = {str(verdict): verdict for verdict in SettleVerdict}  # calling an enum takes ten times as long


def _verdicts(rows: Sequence[tuple[int, str]]) -> list[SettleVerdict]:
    return [_VERDICTS[verdict] for _, verdict in rows]
