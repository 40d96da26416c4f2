"""`sql/flow_retry.sql`, called from Python."""

from __future__ import annotations

from collections.abc import Sequence

from catbird_django.engine.call import Function
from catbird_django.engine.retry import RetryAnswer
from catbird_django.statuses import RetryVerdict

RETRY = Function("cb_retry_flows", run_ids="bigint[]", actor="text")


def retry_flows(run_ids: Sequence[int], *, actor: str, using: str) -> list[RetryAnswer]:
    """Start a new run of each of these that has ended; say what became of each, in order."""
    rows = RETRY.rows(using, run_ids=list(run_ids), actor=actor)
    return [RetryAnswer(run_id, RetryVerdict(verdict), queue) for run_id, verdict, queue in rows]
