"""`manage.py catbird_run`: queue a run of a task from the shell, and wait for it if asked to."""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from catbird_django.client.handles import TaskHandle
from catbird_django.client.options import RunOptions
from catbird_django.client.tasks import run_task
from catbird_django.conf import get_settings
from catbird_django.definitions.registry import registry
from catbird_django.discovery import broken_modules
from catbird_django.errors import CatbirdError, RunError, TaskFailed, UnknownName, WaitTimeout
from catbird_django.monitoring.queries import tasks

USAGE = 2  # exit code, as argparse has it
UNITS = {"": "seconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
OPTIONS = (
    "queue",
    "priority",
    "delay",
    "run_at",
    "expires_at",
    "concurrency_key",
    "idempotency_key",
    "debounce_key",
    "tags",
)


class Command(BaseCommand):
    help = (
        "Queue a run of a task by its name, and print the number of the run. With --wait, wait for it and print its "
        "output. Exits with 0 if all went well, with 1 if the run that was waited for ended without an output or has "
        "not ended in time (it goes on), with 2 if nothing was queued: unknown task, bad input, bad option."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="name of the task")
        _add_input(parser)
        _add_run_options(parser)
        parser.add_argument(
            "--wait", type=float, metavar="SECONDS", help="wait so long for the run to end, and print its output"
        )
        parser.add_argument("--format", choices=["text", "json"], default="text", help="how to print the answer")
        parser.add_argument("--database", metavar="ALIAS", help='alias of the database (default: CATBIRD["DATABASE"])')

    def handle(self, **options: Any) -> None:
        using = options["database"] or get_settings().database
        run = self._queue(options, using)
        if options["wait"] is None:
            self._print(
                options, {"run_id": run.id, "status": run.status().value}, f"run {run.id}: {run.status().value}"
            )
        else:
            self._print_output(options, TaskHandle(run.id, using=using))

    def _queue(self, options: dict[str, Any], using: str) -> TaskHandle[Any]:
        given = cast("RunOptions", {key: options[key] for key in OPTIONS if options[key] is not None})
        given["using"] = using
        try:
            return run_task(options["name"], _read_input(options), **given)
        except UnknownName:
            raise CommandError(_unknown(options["name"], using), returncode=USAGE) from None
        except CatbirdError as error:
            raise CommandError(str(error), returncode=USAGE) from error
        except OperationalError as error:
            raise CommandError(f"database {using!r} does not answer: {str(error).strip()}") from error

    def _print_output(self, options: dict[str, Any], run: TaskHandle[Any]) -> None:
        """Wait for the run; print its output, or what kept it from having one."""
        answer: dict[str, Any] = {"run_id": run.id}
        try:
            output = run.wait(timeout=options["wait"])
        except (RunError, WaitTimeout) as error:
            if options["format"] == "json":
                answer |= {"status": run.status().value}
                answer |= {"error": error.error} if isinstance(error, TaskFailed) else {}
                self.stdout.write(json.dumps(answer))
            raise CommandError(str(error)) from error
        answer |= {"status": run.status().value, "output": output}
        self._print(options, answer, json.dumps(output, ensure_ascii=False))

    def _print(self, options: dict[str, Any], answer: dict[str, Any], text: str) -> None:
        self.stdout.write(json.dumps(answer) if options["format"] == "json" else text)


def _add_input(parser: CommandParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--input", metavar="JSON", help="""the input, as in '{"title": "Ada"}' (default: null)""")
    source.add_argument("--input-file", metavar="FILE", help="read the input, as JSON, from this file; - for stdin")


def _add_run_options(parser: CommandParser) -> None:
    parser.add_argument("--queue", help="queue to put it into (default: the task's own)")
    parser.add_argument("--priority", type=int, help="-100 to 100, higher first (default: 0)")
    time = parser.add_mutually_exclusive_group()
    time.add_argument(
        "--delay", type=_duration, metavar="TIME", help="not before so long from now: 90, 90s, 5m, 2h, 1d"
    )
    time.add_argument("--run-at", type=_moment, metavar="TIME", help="not before this time, as in 2030-01-31T08:00")
    parser.add_argument("--expires-at", type=_moment, metavar="TIME", help="not to be started after this time")
    key = parser.add_mutually_exclusive_group()
    key.add_argument("--concurrency-key", metavar="KEY", help="one live run of the task per key")
    key.add_argument("--idempotency-key", metavar="KEY", help="one run of the task per key, unless it failed")
    key.add_argument("--debounce-key", metavar="KEY", help="one queued run of the task per key, which is replaced")
    parser.add_argument(
        "--tag", dest="tags", action="append", metavar="TAG", help="word to find it by; may be repeated"
    )


def _duration(text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,9})([smhd]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: write a number and s, m, h or d, as in 5m")
    return timedelta(**{UNITS[match[2]]: int(match[1])})


def _moment(text: str) -> datetime:
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: write it as 2030-01-31T08:00 or 2030-01-31T08:00+01:00"
        )
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)


def _read_input(options: dict[str, Any]) -> Any:
    """The input that was given; null for none."""
    text, source = options["input"], "--input"
    if options["input_file"] is not None:
        text, source = _read_file(options["input_file"]), options["input_file"]
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{source}: not JSON: {error}", returncode=USAGE) from error


def _read_file(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--input-file: {error}", returncode=USAGE) from error


def _unknown(name: str, using: str) -> str:
    known = {*registry.tasks, *tasks(using=using).values_list("name", flat=True)}
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else f" (there are: {', '.join(sorted(known)[:20]) or 'none'})"
    broken = "".join(f"\n{module.name} cannot be imported: {module.error}" for module in broken_modules)
    return f"there is no task named {name!r}{hint}{broken}"
