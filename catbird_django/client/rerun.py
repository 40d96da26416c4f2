"""Queues a new run of one that has ended, and wakes who will run it."""

from __future__ import annotations

from catbird_django.client.wake import wake_after_commit
from catbird_django.conf import get_settings
from catbird_django.engine.retry import retry_tasks
from catbird_django.errors import RunNotFinished, RunNotFound
from catbird_django.statuses import RetryVerdict


def rerun_task(run_id: int, *, actor: str, using: str) -> int:
    """Make a new run of an ended one, in the current transaction; return its id.

    That is the id of the live run that has its concurrency key, where there is one.
    """
    [answer] = retry_tasks(
        [run_id], actor=actor.replace("\x00", ""), all_events=get_settings().events == "all", using=using
    )
    if answer.verdict is RetryVerdict.LIVE:
        raise RunNotFinished(f"task run {run_id} has not ended: cancel it first, or wait for it")
    if answer.run_id is None:
        raise RunNotFound(f"there is no task run {run_id} in database {using!r}")
    if answer.verdict is RetryVerdict.QUEUED:
        wake_after_commit(answer.queue or "default", using=using)
    return answer.run_id
