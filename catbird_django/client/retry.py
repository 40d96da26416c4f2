"""Run again what has ended, from anywhere."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async

from catbird_django.client.flow_handles import FlowHandle
from catbird_django.client.handles import TaskHandle
from catbird_django.client.rerun import rerun_flow, rerun_task
from catbird_django.conf import get_settings


def retry_task(run_id: int, *, actor: str = "", using: str | None = None) -> TaskHandle[Any]:
    """Queue a new run with the input and options of one that has ended; return its handle.

    The new run knows its origin, keeps the concurrency key and drops the idempotency key; when a live run has that key,
    its handle is returned. Raise RunNotFinished if the run is live, RunNotFound if there is none. Joins the current
    transaction of the database.
    """
    using = using or get_settings().database
    return TaskHandle(rerun_task(run_id, actor=actor, using=using), using=using)


async def aretry_task(run_id: int, *, actor: str = "", using: str | None = None) -> TaskHandle[Any]:
    """Async twin of `retry_task`."""
    return await sync_to_async(retry_task)(run_id, actor=actor, using=using)


def retry_flow(run_id: int, *, actor: str = "", using: str | None = None) -> FlowHandle[Any]:
    """Start a new run of the whole flow with the input and options of one that has ended; return its handle.

    As `retry_task`; the new run is of the flow as it is registered now.
    """
    using = using or get_settings().database
    return FlowHandle(rerun_flow(run_id, actor=actor, using=using), using=using)


async def aretry_flow(run_id: int, *, actor: str = "", using: str | None = None) -> FlowHandle[Any]:
    """Async twin of `retry_flow`."""
    return await sync_to_async(retry_flow)(run_id, actor=actor, using=using)
