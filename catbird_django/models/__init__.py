"""Every table of catbird as a model, for reading. Writing goes through the SQL functions."""

from catbird_django.models.flow_runs import FlowRun, Readiness, SignalDelivery, StepInput, StepRun
from catbird_django.models.flows import Flow, Step, StepDependency
from catbird_django.models.items import Item
from catbird_django.models.operations import Breaker, Lease
from catbird_django.models.records import Event, RunLog, RunTag
from catbird_django.models.tasks import Task, TaskRun
from catbird_django.models.workers import Worker

__all__ = [
    "Breaker",
    "Event",
    "Flow",
    "FlowRun",
    "Item",
    "Lease",
    "Readiness",
    "RunLog",
    "RunTag",
    "SignalDelivery",
    "Step",
    "StepDependency",
    "StepInput",
    "StepRun",
    "Task",
    "TaskRun",
    "Worker",
]
