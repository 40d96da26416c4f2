"""django-tasks-db: the database backend of Django's own tasks interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import django
from django.conf import settings

from benchmarks.tasks.engines.adapter import UNNUMBERED, Adapter, Enqueue, batches, dsn, option
from benchmarks.tasks.engines.probe import hit


def configure() -> None:
    address = urlsplit(dsn())
    query = parse_qs(address.query)
    settings.configure(
        SECRET_KEY="bench",
        USE_TZ=True,
        INSTALLED_APPS=["django.contrib.contenttypes", "django_tasks", "django_tasks_db"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": address.path[1:],
                "USER": address.username,
                "HOST": query["host"][0],
                "PORT": query["port"][0],
                "CONN_MAX_AGE": None,
            }
        },
        TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": []}},
        LOGGING_CONFIG=None,
    )
    django.setup()


if not settings.configured:
    configure()

from django_tasks import task  # noqa: E402 - it reads the settings


@task()
def noop(number: int) -> None:
    hit(number)


def setup() -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


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
    Adapter(setup, worker, enqueuer).main()
