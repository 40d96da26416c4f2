"""`manage.py catbird_run`: start a run of a task or a flow from the shell, and wait for it if asked to."""

from __future__ import annotations

import argparse
import difflib
import json
import re
from datetime import datetime, timedelta
from typing import Any, cast

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from catbird_django.client.flow_handles import FlowHandle
from catbird_django.client.flow_runs import run_flow
from catbird_django.client.handles import TaskHandle
from catbird_django.client.options import FlowRunOptions, RunOptions
from catbird_django.client.tasks import run_task
from catbird_django.conf import get_settings
from catbird_django.definitions.registry import registry
from catbird_django.discovery import broken_modules
from catbird_django.errors import CatbirdError, FlowFailed, RunError, TaskFailed, UnknownName, WaitTimeout
from catbird_django.management.json_arguments import USAGE, add_json_arguments, read_json
from catbird_django.monitoring.actions import Shell
from catbird_django.monitoring.queries import flows, tasks

Handle = TaskHandle[Any] | FlowHandle[Any]

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
        "Start a run of a task or a flow by its name, and print the number of the run. With --wait, wait for it and "
        "print its output. Exits with 0 if all went well, with 1 if the run that was waited for ended without an "
        "output or has not ended in time (it goes on), with 2 if nothing was started: unknown name, bad input, bad "
        "option."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="name of the task or flow")
        kind = parser.add_mutually_exclusive_group()
        kind.add_argument("--task", action="store_true", help="NAME is a task, though there is such a flow too")
        kind.add_argument("--flow", action="store_true", help="NAME is a flow, though there is such a task too")
        add_json_arguments(parser, "input", '{"title": "Ada"}')
        _add_run_options(parser)
        parser.add_argument(
            "--wait", type=float, metavar="SECONDS", help="wait so long for the run to end, and print its output"
        )
        parser.add_argument("--format", choices=["text", "json"], default="text", help="how to print the answer")
        parser.add_argument("--database", metavar="ALIAS", help='alias of the database (default: CATBIRD["DATABASE"])')

    def handle(self, **options: Any) -> None:
        using = options["database"] or get_settings().database
        try:
            run = _start(options, using)
        except UnknownName:
            raise CommandError(_unknown(options, using), returncode=USAGE) from None
        except (CatbirdError, TypeError) as error:
            raise CommandError(str(error), returncode=USAGE) from error
        except OperationalError as error:
            raise CommandError(f"database {using!r} does not answer: {str(error).strip()}") from error
        if options["wait"] is None:
            status = run.status().value
            self._print(options, {"run_id": run.id, "status": status}, f"run {run.id}: {status}")
        else:
            # From the id alone: what is printed is JSON anyway.
            self._print_output(options, type(run)(run.id, using=using))

    def _print_output(self, options: dict[str, Any], run: Handle) -> None:
        """Wait for the run; print its output, or what kept it from having one."""
        answer: dict[str, Any] = {"run_id": run.id}
        try:
            output = run.wait(timeout=options["wait"])
        except (RunError, WaitTimeout) as error:
            if options["format"] == "json":
                answer |= {"status": run.status().value}
                answer |= {"error": error.error} if isinstance(error, TaskFailed | FlowFailed) else {}
                self.stdout.write(json.dumps(answer))
            raise CommandError(str(error)) from error
        answer |= {"status": run.status().value, "output": output}
        self._print(options, answer, json.dumps(output, ensure_ascii=False))

    def _print(self, options: dict[str, Any], answer: dict[str, Any], text: str) -> None:
        self.stdout.write(json.dumps(answer) if options["format"] == "json" else text)


def _start(options: dict[str, Any], using: str) -> Handle:
    """Start the run that was asked for."""
    given = {key: options[key] for key in OPTIONS if options[key] is not None} | {"using": using}
    value = read_json(options, "input")
    if _is_flow(options, using):
        flow_options = cast("FlowRunOptions", given | {"actor": Shell().name})
        return run_flow(options["name"], value, **flow_options)
    return run_task(options["name"], value, **cast("RunOptions", given))


def _is_flow(options: dict[str, Any], using: str) -> bool:
    """Whether the name is a flow's; raise CommandError when it may be a task's as well."""
    if options["task"] or options["flow"]:
        return bool(options["flow"])
    name = options["name"]
    is_flow = name in registry.flows or flows(using=using).filter(name=name).exists()
    if is_flow and (name in registry.tasks or tasks(using=using).filter(name=name).exists()):
        raise CommandError(f"there are a task and a flow named {name!r}: say --task or --flow", returncode=USAGE)
    return is_flow


def _add_run_options(parser: CommandParser) -> None:
    parser.add_argument("--queue", help="queue to put it into (default: its own)")
    parser.add_argument("--priority", type=int, help="-100 to 100, higher first (default: 0)")
    time = parser.add_mutually_exclusive_group()
    time.add_argument(
        "--delay", type=_duration, metavar="TIME", help="not before so long from now: 90, 90s, 5m, 2h, 1d"
    )
    time.add_argument("--run-at", type=_moment, metavar="TIME", help="not before this time, as in 2030-01-31T08:00")
    parser.add_argument(
        "--expires-at", type=_moment, metavar="TIME", help="expires if not started (a flow: ended) by then"
    )
    key = parser.add_mutually_exclusive_group()
    key.add_argument("--concurrency-key", metavar="KEY", help="one live run of it per key")
    key.add_argument("--idempotency-key", metavar="KEY", help="one run of it per key, unless it failed")
    key.add_argument("--debounce-key", metavar="KEY", help="one queued run of a task per key, which is replaced")
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


def _unknown(options: dict[str, Any], using: str) -> str:
    name = options["name"]
    known: set[str] = set()
    if not options["flow"]:
        known |= {*registry.tasks, *tasks(using=using).values_list("name", flat=True)}
    if not options["task"]:
        known |= {*registry.flows, *flows(using=using).values_list("name", flat=True)}
    what = "task" if options["task"] else "flow" if options["flow"] else "task or flow"
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else f" (there are: {', '.join(sorted(known)[:20]) or 'none'})"
    broken = "".join(f"\n{module.name} cannot be imported: {module.error}" for module in broken_modules)
    return f"there is no {what} named {name!r}{hint}{broken}"
