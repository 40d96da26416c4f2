"""`manage.py catbird_worker`: run background tasks until told to stop."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings as django_settings
from django.core.management.base import BaseCommand, CommandError, CommandParser, SystemCheckError
from django.db import DatabaseError

from catbird_django.conf import get_settings
from catbird_django.definitions.names import NAME
from catbird_django.definitions.registry import registry
from catbird_django.discovery import broken_modules
from catbird_django.errors import CatbirdError, DefinitionError
from catbird_django.worker.channel import Channel, HungUp
from catbird_django.worker.process import NEEDS_REPLACEMENT, Stopper, exit_now, leaving_on_signals, obeying_signals
from catbird_django.worker.recycling import Limits
from catbird_django.worker.reload import FileWatch, start_anew
from catbird_django.worker.supervisor import Supervisor
from catbird_django.worker.worker import Worker, WorkerOptions

logger = logging.getLogger("catbird.worker")


class Mistake(CommandError):
    """Something in the project's code keeps the worker from starting; an edit may mend it."""


class Command(BaseCommand):
    help = (
        "Run background tasks. Stops on SIGTERM or Ctrl-C: claims nothing more, lets running handlers end within "
        "SHUTDOWN_GRACE, gives back the rest. A second signal stops at once. SIGUSR1 lets it drain: it claims nothing "
        "more, and ends when its handlers have, however long they take."
    )
    requires_system_checks = ()  # done later, so that a mistake can be mended while files are watched
    stealth_options = ("supervisor",)  # the line to the process that has started this one

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--concurrency",
            type=int,
            metavar="N",
            help='sync handlers, and async ones, to run at the same time (default: CATBIRD["CONCURRENCY"])',
        )
        parser.add_argument(
            "--processes", type=int, metavar="N", help="keep so many worker processes running (default: be one)"
        )
        parser.add_argument("--queues", nargs="+", metavar="QUEUE", help="only work from these queues (default: all)")
        parser.add_argument("--tasks", nargs="+", metavar="TASK", help="only run these tasks")
        parser.add_argument(
            "--flows",
            nargs="+",
            metavar="FLOW",
            help="only run steps of these flows (with neither --tasks nor --flows: all tasks and flows)",
        )
        parser.add_argument("--until-idle", action="store_true", help="stop when there is nothing left to do")
        parser.add_argument(
            "--once",
            action="store_true",
            help="look for work one time: claim as many due runs as there are free slots, run them, stop",
        )
        parser.add_argument(
            "--max-runs",
            type=int,
            metavar="N",
            help='drain after so many runs, and exit with 75 (default: CATBIRD["MAX_RUNS_PER_WORKER"])',
        )
        parser.add_argument(
            "--max-memory",
            type=int,
            metavar="MB",
            help='drain when it uses so much memory, and exit with 75 (default: CATBIRD["MAX_WORKER_MEMORY"])',
        )
        parser.add_argument(
            "--noreload", action="store_true", help="do not start anew when a file changes, as it does in DEBUG"
        )
        parser.add_argument("--skip-checks", action="store_true", help="skip system checks")

    def handle(self, **options: Any) -> None:
        with leaving_on_signals():
            self._start(options)

    def _start(self, options: dict[str, Any]) -> None:
        _refuse(options)
        if options["processes"] is not None:
            self._check(options)
            self._supervise(options)
            return
        watch = FileWatch() if _watches_files(options) else None
        if watch is not None:
            watch.start(broken_modules=[module.name for module in broken_modules])
        try:
            self._check(options)
            worker = _build(options)
        except (SystemCheckError, Mistake) as error:
            if watch is None:
                raise
            self.stderr.write(f"{error}\nWaiting for a file to change ...")
            watch.changed.wait()
            start_anew()
        self._work(worker, watch, options.get("supervisor"))

    def _check(self, options: dict[str, Any]) -> None:
        if not options["skip_checks"]:
            self.check()

    def _work(self, worker: Worker, watch: FileWatch | None, supervisor: Channel | None) -> None:
        stopper = Stopper(worker, grace=get_settings().shutdown_grace)
        if watch is not None:
            watch.tell(worker.stop)
        if supervisor is not None:
            threading.Thread(target=_stop_without, args=[supervisor, stopper], daemon=True).start()
        # Whoever stops a supervisor may signal all its processes too: only the supervisor knows what was meant twice.
        with obeying_signals(worker, stopper, a_second_one_kills=supervisor is None):
            with _said_plainly():
                worker.enter()  # not earlier: a signal that ended the process here would leave the row behind
            self._say(f"catbird worker {worker.id} runs {_listed(worker.handler_names)}. Ctrl-C stops it.")
            try:
                finished = worker.run()
            except RuntimeError:
                logger.exception("worker has failed")
                exit_now(1)
            if watch is not None and watch.changed.is_set() and not stopper.was_used:
                start_anew()
            if worker.needs_replacement:
                self._say(f"catbird worker stopped, another should take its place: {worker.done_because}.")
                exit_now(NEEDS_REPLACEMENT)
            self._say("catbird worker stopped.")
            if stopper.was_used or not finished or worker.abandoned_count:
                exit_now(0)

    def _supervise(self, options: dict[str, Any]) -> None:
        count = options["processes"]
        supervisor = Supervisor(
            count,
            _arguments_of(options),
            grace=get_settings().shutdown_grace,
            ends_with_workers=options["until_idle"] or options["once"],
        )
        self._say(f"catbird supervisor keeps {count} worker process{'es' if count > 1 else ''}. Ctrl-C stops it.")
        try:
            code = supervisor.run()
        except CatbirdError as error:
            raise CommandError(str(error)) from error
        self._say("catbird supervisor stopped.")
        if code:
            sys.exit(code)

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()


def _refuse(options: dict[str, Any]) -> None:
    """Refuse what cannot be, before any process is started."""
    for option in ("concurrency", "processes", "max_runs", "max_memory"):
        if options[option] is not None and options[option] < 1:
            raise CommandError(f"--{option.replace('_', '-')} must be at least 1")
    for name in options["queues"] or ():
        if not NAME.fullmatch(name):
            raise CommandError(f"--queues: {name!r} is not a name (lower-case letters, digits and _, at most 64)")


def _build(options: dict[str, Any]) -> Worker:
    settings = get_settings()
    if broken_modules:
        raise Mistake("; ".join(f"{module.name}: {module.error}" for module in broken_modules))
    with _said_plainly():
        return Worker(
            WorkerOptions(
                concurrency=options["concurrency"] or settings.concurrency,
                queues=options["queues"],
                tasks=options["tasks"],
                flows=options["flows"],
                until_idle=options["until_idle"],
                once=options["once"],
                limits=Limits(
                    runs=options["max_runs"] or settings.max_runs_per_worker,
                    memory=options["max_memory"] or settings.max_worker_memory,
                ),
            ),
            settings,
            registry,
        )


@contextmanager
def _said_plainly() -> Iterator[None]:
    """Say in a sentence why the worker cannot start."""
    try:
        yield
    except DefinitionError as error:
        raise Mistake(str(error)) from error
    except CatbirdError as error:
        raise CommandError(str(error)) from error
    except DatabaseError as error:
        raise CommandError(f"the database does not answer: {str(error).strip()}") from error


def _watches_files(options: dict[str, Any]) -> bool:
    """Only a worker that a developer has started from the shell, and that would run for ever, starts anew."""
    if not django_settings.DEBUG or options["noreload"] or options["until_idle"] or options["once"]:
        return False
    return options.get("supervisor") is None and sys.argv[1:2] == ["catbird_worker"]


def _arguments_of(options: dict[str, Any]) -> list[str]:
    """The command line of the workers under a supervisor."""
    arguments = ["--noreload"]
    for option in ("concurrency", "max_runs", "max_memory"):
        if options[option] is not None:
            arguments += [f"--{option.replace('_', '-')}", str(options[option])]
    for option in ("queues", "tasks", "flows"):
        if options[option]:
            arguments += [f"--{option}", *options[option]]
    return arguments + [f"--{option.replace('_', '-')}" for option in ("until_idle", "once") if options[option]]


def _stop_without(supervisor: Channel, stopper: Stopper) -> None:
    """Stop the worker when its supervisor is gone."""
    try:
        supervisor.receive()
    except HungUp:
        stopper.stop()


def _listed(handlers: list[str]) -> str:
    tasks = [name for name in handlers if "." not in name]
    flows = sorted({name.partition(".")[0] for name in handlers if "." in name})
    if not handlers:
        return "no tasks: none is declared in the tasks.py of an installed app"
    said = [_shortened(tasks)] if tasks else []
    if flows:
        said.append(f"the flow{'s' if len(flows) > 1 else ''} {_shortened(flows)}")
    return " and ".join(said)


def _shortened(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
