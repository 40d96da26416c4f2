"""`sql/cancel.sql`, called from Python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from catbird_django.engine.call import Function, columns
from catbird_django.engine.tasks import Delivery
from catbird_django.failpoints import before_commit
from catbird_django.statuses import CancelVerdict, SettleVerdict

CANCEL = Function("cb_cancel_tasks", run_ids="bigint[]", reason="text", actor="text", notify="boolean")
CANCEL_CLAIMED = Function(
    "cb_cancel_claimed_tasks", run_ids="bigint[]", delivery_tokens="uuid[]", reasons="text[]", notify="boolean"
)

before_cancel_commits = partial(before_commit, "in-cancel")


def cancel_tasks(run_ids: Sequence[int], *, reason: str, actor: str, notify: bool, using: str) -> list[CancelVerdict]:
    """Cancel these runs; say what became of each, in order."""
    with before_cancel_commits(using):
        rows = CANCEL.rows(using, run_ids=list(run_ids), reason=reason, actor=actor, notify=notify)
    return [CancelVerdict(verdict) for _, verdict in rows]


def cancel_claimed_tasks(
    cancellations: Sequence[tuple[Delivery, str]], *, notify: bool, using: str
) -> list[SettleVerdict]:
    """End these runs as their handlers asked to, each for a reason; say of each whether it was still ours."""
    run_ids, tokens = columns([delivery for delivery, _ in cancellations], 2)
    reasons = [reason for _, reason in cancellations]
    rows = CANCEL_CLAIMED.rows(using, run_ids=run_ids, delivery_tokens=tokens, reasons=reasons, notify=notify)
    return [SettleVerdict(verdict) for _, verdict in rows]
