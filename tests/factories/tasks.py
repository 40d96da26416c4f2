"""Tasks, and runs of them: queued and due unless a trait says otherwise."""

from __future__ import annotations

import uuid
from datetime import timedelta

import factory
from django.utils import timezone

from catbird_django.models import Task, TaskRun
from catbird_django.statuses import TaskStatus
from tests.factories.workers import WorkerFactory

ERROR = {
    "type": "ZeroDivisionError",
    "message": "division by zero",
    "traceback": 'Traceback (most recent call last):\n  File "tasks.py", line 77, in divide\nZeroDivisionError: …\n',
}


class TaskFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Task

    name = factory.Sequence(lambda number: f"task_{number}")
    queue = "default"
    description = "Do something."
    handler = factory.LazyAttribute(lambda task: f"shop.tasks:{task.name}")
    input_schema = factory.LazyFunction(lambda: {"type": "object"})
    output_schema = factory.LazyFunction(lambda: {"type": "string"})
    fingerprint = "0" * 64
    registered_at = factory.LazyFunction(timezone.now)


def _after_queued(**duration: float) -> factory.LazyAttribute:
    return factory.LazyAttribute(lambda run: run.queued_at + timedelta(**duration))


class TaskRunFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = TaskRun

    class Params:
        delayed = factory.Trait(visible_at=_after_queued(hours=1))
        claimed = factory.Trait(
            delivery_token=factory.LazyFunction(uuid.uuid4),
            worker=factory.SubFactory(WorkerFactory),
            delivery_count=1,
            started_at=_after_queued(milliseconds=120),
        )
        held = factory.Trait(
            claimed=True, lease_until=factory.LazyFunction(lambda: timezone.now() + timedelta(seconds=30))
        )
        finished = factory.Trait(finished_at=_after_queued(seconds=2))

        started = factory.Trait(held=True, status=TaskStatus.STARTED)
        canceling = factory.Trait(held=True, status=TaskStatus.CANCELING)
        completed = factory.Trait(claimed=True, finished=True, status=TaskStatus.COMPLETED, output={"text": "Hello!"})
        failed = factory.Trait(claimed=True, finished=True, status=TaskStatus.FAILED, error=ERROR, failure_count=1)
        skipped = factory.Trait(finished=True, status=TaskStatus.SKIPPED)
        canceled = factory.Trait(finished=True, status=TaskStatus.CANCELED)
        expired = factory.Trait(finished=True, status=TaskStatus.EXPIRED)

    task = factory.SubFactory(TaskFactory)
    queue = factory.SelfAttribute("task.queue")
    input = factory.LazyFunction(lambda: {"name": "Ada"})
    queued_at = factory.LazyFunction(lambda: timezone.now() - timedelta(seconds=5))
