"""`manage.py catbird_worker`: run background tasks until told to stop."""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from catbird_django.conf import get_settings
from catbird_django.definitions.names import NAME
from catbird_django.definitions.registry import registry
from catbird_django.discovery import broken_modules
from catbird_django.errors import CatbirdError
from catbird_django.worker.worker import Worker, WorkerOptions

NEEDS_REPLACEMENT = 75  # EX_TEMPFAIL: start another in my place


class Command(BaseCommand):
    help = (
        "Run background tasks. Stops on SIGTERM or Ctrl-C: claims nothing more, lets running handlers end within "
        "SHUTDOWN_GRACE, gives back the rest. A second signal stops at once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--concurrency",
            type=int,
            metavar="N",
            help='sync handlers, and async ones, to run at the same time (default: CATBIRD["CONCURRENCY"])',
        )
        parser.add_argument("--queues", nargs="+", metavar="QUEUE", help="only work from these queues (default: all)")
        parser.add_argument("--tasks", nargs="+", metavar="TASK", help="only run these tasks (default: all)")
        parser.add_argument("--until-idle", action="store_true", help="stop when there is nothing left to do")

    def handle(self, **options: Any) -> None:
        worker = self._build(options)
        grace = get_settings().shutdown_grace.total_seconds()
        with _signals_stop(worker, dead_after=grace + 5) as stopped_by_signal:
            self.stdout.write(f"catbird worker {worker.id} runs {_listed(worker.task_names)}. Ctrl-C stops it.")
            self.stdout.flush()
            finished = worker.run()
            self.stdout.write("catbird worker stopped.")
            if stopped_by_signal() or not finished or worker.abandoned_count:
                # Threads that handlers have left behind would keep the process alive; nothing of ours is left to do.
                logging.shutdown()
                self.stdout.flush()
                os._exit(NEEDS_REPLACEMENT if worker.needs_replacement else 0)

    def _build(self, options: dict[str, Any]) -> Worker:
        settings = get_settings()
        concurrency = options["concurrency"] if options["concurrency"] is not None else settings.concurrency
        if concurrency < 1:
            raise CommandError("--concurrency must be at least 1")
        if broken_modules:
            raise CommandError("; ".join(f"{module.name}: {module.error}" for module in broken_modules))
        for name in options["queues"] or ():
            if not NAME.fullmatch(name):
                raise CommandError(f"--queues: {name!r} is not a name (lower-case letters, digits and _, at most 64)")
        try:
            return Worker(
                WorkerOptions(
                    concurrency=concurrency,
                    queues=options["queues"],
                    tasks=options["tasks"],
                    until_idle=options["until_idle"],
                ),
                settings,
                registry,
            )
        except CatbirdError as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            raise CommandError(f"the database does not answer: {str(error).strip()}") from error


def _listed(names: list[str]) -> str:
    if not names:
        return "no tasks: none is declared in the tasks.py of an installed app"
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


@contextmanager
def _signals_stop(worker: Worker, *, dead_after: float) -> Iterator[Callable[[], bool]]:
    """The first SIGTERM or SIGINT asks the worker to stop, the second ends the process; so does time (W4)."""
    asked: queue.SimpleQueue[None] = queue.SimpleQueue()

    def stop_then_die(number: int, _frame: FrameType | None) -> None:
        if not asked.empty():
            os._exit(128 + number)
        asked.put(None)
        worker.stop()
        threading.Thread(target=_exit_after, args=[dead_after], daemon=True).start()

    before = {number: signal.signal(number, stop_then_die) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: not asked.empty()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_after(seconds: float) -> None:
    """End the process, whatever it waits for: a database that is gone, or a thread that does not end."""
    time.sleep(seconds)
    os._exit(0)
