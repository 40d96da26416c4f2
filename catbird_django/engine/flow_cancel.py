"""`sql/flow_cancel.sql`, called from Python."""

from __future__ import annotations

from collections.abc import Sequence

from catbird_django.engine.call import Function, columns
from catbird_django.engine.cancel import before_cancel_commits
from catbird_django.engine.items import ItemDelivery
from catbird_django.engine.steps import StepDelivery
from catbird_django.statuses import CancelVerdict, SettleVerdict

CANCEL = Function("cb_cancel_flows", run_ids="bigint[]", reason="text", actor="text", notify="boolean")
CANCEL_CLAIMED = Function(
    "cb_cancel_claimed_steps", step_run_ids="bigint[]", delivery_tokens="uuid[]", reasons="text[]", notify="boolean"
)

CANCEL_CLAIMED_ITEMS = Function(
    "cb_cancel_claimed_items", item_ids="bigint[]", delivery_tokens="uuid[]", reasons="text[]", notify="boolean"
)


def cancel_flows(run_ids: Sequence[int], *, reason: str, actor: str, notify: bool, using: str) -> list[CancelVerdict]:
    """Cancel these runs; say what became of each, in order."""
    with before_cancel_commits(using):
        rows = CANCEL.rows(using, run_ids=list(run_ids), reason=reason, actor=actor, notify=notify)
    return [CancelVerdict(verdict) for _, verdict in rows]


def cancel_claimed_steps(
    cancellations: Sequence[tuple[StepDelivery, str]], *, notify: bool, using: str
) -> list[SettleVerdict]:
    """Cancel the runs of these steps as their handlers asked to, each for a reason; say whether it was still ours."""
    ids, tokens = columns([delivery for delivery, _ in cancellations], 2)
    reasons = [reason for _, reason in cancellations]
    rows = CANCEL_CLAIMED.rows(using, step_run_ids=ids, delivery_tokens=tokens, reasons=reasons, notify=notify)
    return [SettleVerdict(verdict) for _, verdict in rows]


def cancel_claimed_items(
    cancellations: Sequence[tuple[ItemDelivery, str]], *, notify: bool, using: str
) -> list[SettleVerdict]:
    """Cancel the runs of these items, as `cancel_claimed_steps` does those of steps."""
    ids, tokens = columns([delivery for delivery, _ in cancellations], 2)
    reasons = [reason for _, reason in cancellations]
    rows = CANCEL_CLAIMED_ITEMS.rows(using, item_ids=ids, delivery_tokens=tokens, reasons=reasons, notify=notify)
    return [SettleVerdict(verdict) for _, verdict in rows]
