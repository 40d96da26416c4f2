"""django-ox: a backend of Django's own tasks interface, with leases, and threads in the worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.engines.exchange import option
from benchmarks.engines.probe import hit
from benchmarks.tasks.engines.adapter import UNNUMBERED, Adapter, Enqueue, batches
from benchmarks.tasks.engines.django_site import configure, migrate

configure(apps=["django_ox"], tasks={"BACKEND": "django_ox.backend.OxBackend"})

from django.tasks import task  # noqa: E402 - it reads the settings


@task()
def noop(number: int) -> None:
    hit(number)


def worker() -> None:
    from django.core.management import call_command

    call_command("ox_worker", concurrency=option("concurrency", 1), interval=option("poll", 0.1), verbosity=0)


@contextmanager
def enqueuer() -> Iterator[Enqueue]:
    from django_ox.bulk import enqueue_many

    # By the module's real name: the worker imports the function by the path that is stored here.
    from benchmarks.tasks.engines.on_django_ox import noop

    def many(count: int) -> None:
        for size in batches(count):
            enqueue_many(noop, [((UNNUMBERED,), {})] * size)

    yield Enqueue(noop.enqueue, many)


if __name__ == "__main__":
    Adapter(migrate, worker, enqueuer).main()
