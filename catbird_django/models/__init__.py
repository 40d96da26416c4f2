"""Every table of catbird as a model, for reading. Writing goes through the SQL functions."""

from catbird_django.models.operations import Lease
from catbird_django.models.tasks import Task, TaskRun
from catbird_django.models.workers import Worker

__all__ = ["Lease", "Task", "TaskRun", "Worker"]
