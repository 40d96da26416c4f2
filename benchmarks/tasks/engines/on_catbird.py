"""Ours: enqueued with `.run()` and `.run_many()`. The worker is the real command, started by the measuring process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django

from benchmarks.engines.exchange import option
from benchmarks.tasks.engines.adapter import UNNUMBERED, Adapter, Enqueue, batches


def setup() -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def worker() -> None:
    raise SystemExit("the worker is `manage.py catbird_worker`")


def keep_document() -> Any:
    from benchmarks.tasks.engines.catbird_site import tasks

    return tasks.keep_document


def noop() -> Any:
    from benchmarks.tasks.engines.catbird_site import tasks

    return getattr(tasks, option("task", "noop"))


def input_of(number: int) -> Any:
    return {"number": number} if option("task", "noop") == "typed_noop" else number


@contextmanager
def enqueuer() -> Iterator[Enqueue]:
    task = noop()

    def many(count: int) -> None:
        for size in batches(count):
            task.run_many([input_of(UNNUMBERED)] * size)

    yield Enqueue(lambda number: task.run(input_of(number)), many, keep_document().run_many)


if __name__ == "__main__":
    django.setup()
    Adapter(setup, worker, enqueuer).main()
