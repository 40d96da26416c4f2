"""Cancel runs, from anywhere."""

from __future__ import annotations

from asgiref.sync import sync_to_async

from catbird_django.client.options import checked_actor, storable
from catbird_django.conf import get_settings
from catbird_django.engine.cancel import cancel_tasks
from catbird_django.engine.flow_cancel import cancel_flows
from catbird_django.engine.flows import read_flow_run
from catbird_django.engine.tasks import read_task_run
from catbird_django.errors import RunNotFound
from catbird_django.statuses import CancelVerdict, FlowStatus, TaskStatus


def cancel_task(run_id: int, *, reason: str = "", actor: str = "", using: str | None = None) -> TaskStatus:
    """Cancel a run of a task; return how it is afterwards. Raise RunNotFound if there is no such run.

    Joins the current transaction of the database. Canceling again, or what has ended, changes nothing.
    """
    settings = get_settings()
    using = using or settings.database
    reason, actor = storable(reason), checked_actor(actor)
    [verdict] = cancel_tasks([run_id], reason=reason, actor=actor, notify=settings.notify, using=using)
    if verdict is CancelVerdict.UNKNOWN:
        raise RunNotFound(f"there is no task run {run_id} in database {using!r}")
    if verdict is CancelVerdict.FINISHED:
        state = read_task_run(run_id, using=using)
        return TaskStatus(state.status) if state else TaskStatus.CANCELED
    return TaskStatus(verdict.value)


def cancel_flow(run_id: int, *, reason: str = "", actor: str = "", using: str | None = None) -> FlowStatus:
    """Cancel a run of a flow; return how it is afterwards. Raise RunNotFound if there is no such run.

    Joins the current transaction of the database. Canceling again, or what has ended or is ending, changes nothing.
    """
    settings = get_settings()
    using = using or settings.database
    reason, actor = storable(reason), checked_actor(actor)
    [verdict] = cancel_flows([run_id], reason=reason, actor=actor, notify=settings.notify, using=using)
    if verdict is CancelVerdict.UNKNOWN:
        raise RunNotFound(f"there is no flow run {run_id} in database {using!r}")
    if verdict is CancelVerdict.CANCELED:
        return FlowStatus.CANCELED
    # It has ended, or is ending by itself: only its row knows how.
    state = read_flow_run(run_id, using=using)
    return FlowStatus(state.status) if state else FlowStatus.CANCELED


async def acancel_task(run_id: int, *, reason: str = "", actor: str = "", using: str | None = None) -> TaskStatus:
    """Async twin of `cancel_task`."""
    return await sync_to_async(cancel_task)(run_id, reason=reason, actor=actor, using=using)


async def acancel_flow(run_id: int, *, reason: str = "", actor: str = "", using: str | None = None) -> FlowStatus:
    """Async twin of `cancel_flow`."""
    return await sync_to_async(cancel_flow)(run_id, reason=reason, actor=actor, using=using)
