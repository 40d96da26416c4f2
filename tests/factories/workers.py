"""Workers: alive unless a trait says otherwise."""

from __future__ import annotations

import uuid
from datetime import timedelta

import factory
from django.utils import timezone

from catbird_django.models import Worker


class WorkerFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Worker

    class Params:
        sleeping = factory.Trait(sleeping_since=factory.SelfAttribute("seen_at"))
        stopped = factory.Trait(stopped_at=factory.SelfAttribute("seen_at"))
        silent = factory.Trait(seen_at=factory.LazyFunction(lambda: timezone.now() - timedelta(hours=1)))

    boot_id = factory.LazyFunction(uuid.uuid4)
    host = factory.Sequence(lambda number: f"host{number}")
    pid = factory.Sequence(lambda number: 1000 + number)
    version = "0.1.0"
    queues = None
    handlers = factory.LazyFunction(lambda: ["brew", "greet"])
    slots = 10
    started_at = factory.LazyAttribute(lambda worker: worker.seen_at - timedelta(minutes=1))
    seen_at = factory.LazyFunction(timezone.now)
