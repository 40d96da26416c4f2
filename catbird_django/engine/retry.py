"""`sql/retry.sql`, called from Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from catbird_django.engine.call import Function
from catbird_django.statuses import RetryVerdict

RETRY = Function("cb_retry_tasks", run_ids="bigint[]", actor="text", all_events="boolean")


class RetryAnswer(NamedTuple):
    """What became of one run of `retry_tasks`."""

    run_id: int | None
    """The new run, or the live one that has the key."""
    verdict: RetryVerdict
    queue: str | None


def retry_tasks(run_ids: Sequence[int], *, actor: str, all_events: bool = False, using: str) -> list[RetryAnswer]:
    """Make a new run of each of these that has ended; say what became of each, in order."""
    rows = RETRY.rows(using, run_ids=list(run_ids), actor=actor, all_events=all_events)
    return [RetryAnswer(run_id, RetryVerdict(verdict), queue) for run_id, verdict, queue in rows]
