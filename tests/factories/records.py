"""What is written down beside runs: events, log lines and tags."""

from __future__ import annotations

import factory
from django.utils import timezone

from catbird_django.models import Event, RunLog, RunTag


class EventFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Event

    at = factory.LazyFunction(timezone.now)
    run_kind = "task"
    event = "retried"
    from_status = "started"
    to_status = "queued"
    actor = "worker"


class RunLogFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = RunLog

    at = factory.LazyFunction(timezone.now)
    run_kind = "task"
    attempt = 1
    level = "info"
    message = "Something was done."


class RunTagFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = RunTag

    run_kind = "task"
    tag = "customer:42"
