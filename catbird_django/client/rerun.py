"""Queues a new run of one that has ended, and wakes who will run it."""

from __future__ import annotations

from catbird_django.client.options import checked_actor
from catbird_django.client.wake import wake_after_commit
from catbird_django.conf import get_settings
from catbird_django.engine.flow_retry import retry_flows
from catbird_django.engine.retry import RetryAnswer, retry_tasks
from catbird_django.errors import RunNotFinished, RunNotFound
from catbird_django.statuses import RetryVerdict


def rerun_task(run_id: int, *, actor: str, using: str) -> int:
    """Make a new run of an ended one, in the current transaction; return its id.

    That is the id of the live run that has its concurrency key, where there is one.
    """
    all_events = get_settings().events == "all"
    [answer] = retry_tasks([run_id], actor=checked_actor(actor), all_events=all_events, using=using)
    return _new_run(answer, f"task run {run_id}", using)


def rerun_flow(run_id: int, *, actor: str, using: str) -> int:
    """Make a new run of an ended one of a flow, as `rerun_task` does of a task."""
    [answer] = retry_flows([run_id], actor=checked_actor(actor), using=using)
    return _new_run(answer, f"flow run {run_id}", using)


def _new_run(answer: RetryAnswer, old: str, using: str) -> int:
    if answer.verdict is RetryVerdict.LIVE:
        raise RunNotFinished(f"{old} has not ended: cancel it first, or wait for it")
    if answer.run_id is None:
        raise RunNotFound(f"there is no {old} in database {using!r}")
    if answer.verdict is RetryVerdict.QUEUED:
        wake_after_commit(answer.queue or "default", using=using)
    return answer.run_id
