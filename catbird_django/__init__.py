"""Tasks and durable workflows in the PostgreSQL your Django project already has.

What is importable from here is the public API; everything else may change any day.
"""

from catbird_django.client.cancel import acancel_flow, acancel_task, cancel_flow, cancel_task
from catbird_django.client.context import StepContext, TaskContext
from catbird_django.client.decorator import task
from catbird_django.client.explain import Requirement, aexplain, explain
from catbird_django.client.failures import FlowFailure, RunFailure, TaskFailure
from catbird_django.client.flow_handles import FlowHandle
from catbird_django.client.flow_runs import arun_flow, run_flow
from catbird_django.client.flows import Flow, ItemError, Optional, Signal, Step
from catbird_django.client.handles import TaskHandle
from catbird_django.client.interrupts import Cancel, CancelRequested, Retry, Skip, Snooze, complete_early
from catbird_django.client.retry import aretry_flow, aretry_task, retry_flow, retry_task
from catbird_django.client.signals import asignal_flow, signal_flow
from catbird_django.client.tasks import Task, arun_task, run_task
from catbird_django.errors import (
    CatbirdError,
    DefinitionError,
    FlowFailed,
    InvalidOption,
    PayloadError,
    RunCanceled,
    RunExpired,
    RunNotFinished,
    RunNotFound,
    RunSkipped,
    SignalRefused,
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
    "Flow",
    "FlowFailed",
    "FlowFailure",
    "FlowHandle",
    "InvalidOption",
    "ItemError",
    "Optional",
    "PayloadError",
    "Requirement",
    "Retry",
    "RunCanceled",
    "RunExpired",
    "RunFailure",
    "RunNotFinished",
    "RunNotFound",
    "RunSkipped",
    "Signal",
    "SignalRefused",
    "Skip",
    "Snooze",
    "Step",
    "StepContext",
    "Task",
    "TaskContext",
    "TaskFailed",
    "TaskFailure",
    "TaskHandle",
    "UnknownName",
    "WaitInTransaction",
    "WaitTimeout",
    "acancel_flow",
    "acancel_task",
    "aexplain",
    "aretry_flow",
    "aretry_task",
    "arun_flow",
    "arun_task",
    "asignal_flow",
    "cancel_flow",
    "cancel_task",
    "complete_early",
    "explain",
    "retry_flow",
    "retry_task",
    "run_flow",
    "run_task",
    "signal_flow",
    "task",
]
