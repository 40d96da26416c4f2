"""`sql/items.sql`, called from Python."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from catbird_django.engine.call import Function, columns
from catbird_django.engine.tasks import JsonText, LaneRequest, _verdicts
from catbird_django.statuses import SettleVerdict

_SETTLE = {"item_ids": "bigint[]", "delivery_tokens": "uuid[]"}

CLAIM = Function(
    "cb_claim_items",
    answering="""run_id, delivery_token::text, queue, -step_id, priority, input, headers, delivery_count, failure_count,
    lost_count, flow_run_id, outputs, signal, lists, step_run_id, index, item, is_error, is_first""",
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
COMPLETE = Function("cb_complete_items", **_SETTLE, outputs="jsonb[]", notify="boolean", all_events="boolean")
COMPLETE_EARLY = Function("cb_complete_items_early", **_SETTLE, outputs="jsonb[]", reasons="text[]", notify="boolean")
FAIL = Function("cb_fail_items", **_SETTLE, errors="jsonb[]", retry_delays="interval[]", notify="boolean")
RELEASE = Function("cb_release_items", **_SETTLE, delays="interval[]", notify="boolean")
EXTEND = Function("cb_extend_items", **_SETTLE, lease="interval")
FIND_LOCKED = Function("cb_find_locked_items", item_ids="bigint[]")
READ = Function("cb_read_items", step_run_id="bigint", after="integer", limit="integer")


class ItemDelivery(NamedTuple):
    """An item in the hands of a worker, and the proof of it; as `Delivery` is of a task's run."""

    run_id: int
    delivery_token: str


class ItemClaim(NamedTuple):
    """A claimed item of a map. It begins as the claim of a step does."""

    run_id: int
    """The id of the item."""
    delivery: ItemDelivery
    queue: str
    handler_id: int
    """The id of the map, negated, as of any step."""
    priority: int
    input: JsonText | None
    """Of the flow run, if the map takes it."""
    headers: JsonText | None
    delivery_count: int
    failure_count: int
    lost_count: int
    flow_run_id: int
    outputs: JsonText | None
    """Of the steps before the map, by name, without what it goes over."""
    signal: JsonText | None
    lists: JsonText | None
    """Of the maps before it whose items it takes as a list: their step runs, by name."""
    step_run_id: int
    place: int
    """The index of the item, from 0."""
    item: JsonText
    is_error: bool
    """Whether it is the error of an item that failed, of a map that went on without it."""

    @property
    def attempt(self) -> int:
        return self.failure_count + self.lost_count + 1


class ItemOutput(NamedTuple):
    """What an item of a completed map has given."""

    place: int
    """The index of the item, from 0."""
    value: JsonText
    is_error: bool
    """Whether it failed, and the value tells how."""


def claim_items(
    requests: Sequence[LaneRequest],
    *,
    worker_id: int,
    lease: timedelta,
    suspect: bool = False,
    all_events: bool = False,
    using: str,
) -> list[ItemClaim]:
    """Claim due items of these lanes for a worker; with `suspect`, one that has lost its worker twice, if any."""
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
    shared = {row[_STEP_RUN]: row for row in rows if row[_IS_FIRST]}
    return [_claim(row, shared[row[_STEP_RUN]]) for row in rows]


_STEP_RUN, _IS_FIRST = 14, 18


def _claim(row: tuple[Any, ...], first: tuple[Any, ...]) -> ItemClaim:
    """Make a claim of a row; what all items of a map have in common is in the row of the first of them."""
    run_id, token, queue, handler_id, priority = row[:5]
    value, headers = first[5:7]
    its_own = (run_id, ItemDelivery._make((run_id, token)), queue, handler_id, priority)
    return ItemClaim._make((*its_own, value, headers, *row[7:11], *first[11:14], *row[14:18]))


def complete_items(
    completions: Sequence[tuple[ItemDelivery, JsonText]], *, notify: bool, all_events: bool = False, using: str
) -> list[SettleVerdict]:
    """Complete these items, and their steps with the last of them; say of each whether it was still ours."""
    ids, tokens = columns([delivery for delivery, _ in completions], 2)
    outputs = [output for _, output in completions]
    return _verdicts(
        COMPLETE.rows(
            using, item_ids=ids, delivery_tokens=tokens, outputs=outputs, notify=notify, all_events=all_events
        )
    )


def complete_items_early(
    endings: Sequence[tuple[ItemDelivery, JsonText, str]], *, notify: bool, using: str
) -> list[SettleVerdict]:
    """Complete the runs of these items, each with an output and for a reason; say of each whether it counted."""
    ids, tokens = columns([delivery for delivery, _, _ in endings], 2)
    outputs = [output for _, output, _ in endings]
    reasons = [reason for _, _, reason in endings]
    return _verdicts(
        COMPLETE_EARLY.rows(
            using, item_ids=ids, delivery_tokens=tokens, outputs=outputs, reasons=reasons, notify=notify
        )
    )


def fail_items(
    failures: Sequence[tuple[ItemDelivery, JsonText, timedelta | None]], *, notify: bool, using: str
) -> list[SettleVerdict]:
    """Report failed attempts, each with the delay of its retry (None: no retry); say what became of each, in order."""
    ids, tokens = columns([delivery for delivery, _, _ in failures], 2)
    errors = [error for _, error, _ in failures]
    delays = [delay for _, _, delay in failures]
    return _verdicts(
        FAIL.rows(using, item_ids=ids, delivery_tokens=tokens, errors=errors, retry_delays=delays, notify=notify)
    )


def release_items(
    releases: Sequence[tuple[ItemDelivery, timedelta | None]], *, notify: bool, using: str
) -> list[SettleVerdict]:
    """Give these items back, unfinished, to be run at once (None) or after a delay; say of each whether it was ours."""
    ids, tokens = columns([delivery for delivery, _ in releases], 2)
    delays = [delay for _, delay in releases]
    return _verdicts(RELEASE.rows(using, item_ids=ids, delivery_tokens=tokens, delays=delays, notify=notify))


def extend_items(deliveries: Sequence[ItemDelivery], *, lease: timedelta, using: str) -> list[SettleVerdict]:
    """Renew the leases of these items; say of each, in order, whether it was still ours."""
    ids, tokens = columns(deliveries, 2)
    return _verdicts(EXTEND.rows(using, item_ids=ids, delivery_tokens=tokens, lease=lease))


def find_locked_items(item_ids: Sequence[int], *, using: str) -> set[int]:
    """Find those of these items that others have locked just now, or their step runs or flow runs."""
    return {run_id for (run_id,) in FIND_LOCKED.rows(using, item_ids=list(item_ids))}


def read_items(step_run_id: int, *, after: int = -1, limit: int, using: str) -> list[ItemOutput]:
    """Read the values of a completed map's items, in their order, from the one after `after` on."""
    return [ItemOutput(*row) for row in READ.rows(using, step_run_id=step_run_id, after=after, limit=limit)]
