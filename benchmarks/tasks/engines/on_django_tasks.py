"""django-tasks-db: the database backend of Django's own tasks interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.engines.exchange import option
from benchmarks.engines.probe import hit
from benchmarks.tasks.engines.adapter import UNNUMBERED, Adapter, Enqueue, batches
from benchmarks.tasks.engines.django_site import configure, migrate

configure(apps=["django_tasks", "django_tasks_db"], tasks={"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": []})

from django_tasks import task  # noqa: E402 - it reads the settings


@task()
def noop(number: int) -> None:
    hit(number)


def worker() -> None:
    from django.core.management import call_command

    call_command("db_worker", interval=option("poll", 0.1), startup_delay=False, reload=False, verbosity=0)


@contextmanager
def enqueuer() -> Iterator[Enqueue]:
    from django.db import transaction

    # By the module's real name: the worker imports the function by the path that is stored here.
    from benchmarks.tasks.engines.on_django_tasks import noop

    def many(count: int) -> None:
        for size in batches(count):
            with transaction.atomic():
                for _ in range(size):
                    noop.enqueue(UNNUMBERED)

    yield Enqueue(noop.enqueue, many)


if __name__ == "__main__":
    Adapter(migrate, worker, enqueuer).main()
