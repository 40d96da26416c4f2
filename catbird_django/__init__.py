"""Tasks and durable workflows in the PostgreSQL your Django project already has.

What is importable from here is the public API; everything else may change any day.
"""

from catbird_django.client.cancel import acancel_task, cancel_task
from catbird_django.client.context import TaskContext
from catbird_django.client.decorator import task
from catbird_django.client.failures import RunFailure, TaskFailure
from catbird_django.client.handles import TaskHandle
from catbird_django.client.interrupts import Cancel, CancelRequested, Retry, Snooze
from catbird_django.client.retry import aretry_task, retry_task
from catbird_django.client.tasks import Task, arun_task, run_task
from catbird_django.errors import (
    CatbirdError,
    DefinitionError,
    InvalidOption,
    PayloadError,
    RunCanceled,
    RunExpired,
    RunNotFinished,
    RunNotFound,
    RunSkipped,
    TaskFailed,
    UnknownName,
    WaitInTransaction,
    WaitTimeout,
)

__version__ = "0.1.0.dev0"

__all__ = [
    "Cancel",
    "CancelRequested",
    "CatbirdError",
    "DefinitionError",
    "InvalidOption",
    "PayloadError",
    "Retry",
    "RunCanceled",
    "RunExpired",
    "RunFailure",
    "RunNotFinished",
    "RunNotFound",
    "RunSkipped",
    "Snooze",
    "Task",
    "TaskContext",
    "TaskFailed",
    "TaskFailure",
    "TaskHandle",
    "UnknownName",
    "WaitInTransaction",
    "WaitTimeout",
    "acancel_task",
    "aretry_task",
    "arun_task",
    "cancel_task",
    "retry_task",
    "run_task",
    "task",
]
