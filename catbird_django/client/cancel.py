"""Cancel runs, from anywhere."""

from __future__ import annotations

from asgiref.sync import sync_to_async

from catbird_django.conf import get_settings
from catbird_django.engine.cancel import cancel_tasks
from catbird_django.engine.tasks import read_task_run
from catbird_django.errors import RunNotFound
from catbird_django.statuses import CancelVerdict, TaskStatus


def cancel_task(run_id: int, *, reason: str = "", actor: str = "", using: str | None = None) -> TaskStatus:
    """Cancel a run of a task; return how it is afterwards. Raise RunNotFound if there is no such run.

    Joins the current transaction of the database. Canceling again, or what has ended, changes nothing.
    """
    settings = get_settings()
    using = using or settings.database
    reason, actor = reason.replace("\x00", ""), actor.replace("\x00", "")
    [verdict] = cancel_tasks([run_id], reason=reason, actor=actor, notify=settings.notify, using=using)
    if verdict is CancelVerdict.UNKNOWN:
        raise RunNotFound(f"there is no task run {run_id} in database {using!r}")
    if verdict is CancelVerdict.FINISHED:
        state = read_task_run(run_id, using=using)
        return TaskStatus(state.status) if state else TaskStatus.CANCELED
    return TaskStatus(verdict.value)


async def acancel_task(run_id: int, *, reason: str = "", actor: str = "", using: str | None = None) -> TaskStatus:
    """Async twin of `cancel_task`."""
    return await sync_to_async(cancel_task)(run_id, reason=reason, actor=actor, using=using)
