"""Every table of catbird as a model, for reading. Writing goes through the SQL functions."""

from catbird_django.models.operations import Breaker, Lease
from catbird_django.models.records import Event, RunLog, RunTag
from catbird_django.models.tasks import Task, TaskRun
from catbird_django.models.workers import Worker

__all__ = ["Breaker", "Event", "Lease", "RunLog", "RunTag", "Task", "TaskRun", "Worker"]
