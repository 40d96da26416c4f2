"""`manage.py catbird_status`: workers, and what is queued, running and failing."""

from __future__ import annotations

import argparse
import json
import time
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, connections

from catbird_django.conf import get_settings
from catbird_django.engine.schema import require_current_schema
from catbird_django.errors import SchemaMismatch
from catbird_django.monitoring.durations import in_words
from catbird_django.monitoring.flow_figures import COUNT_LIMIT, FLOW_REACH, FlowFigures
from catbird_django.monitoring.status import (
    FAILED_REACH,
    FAILED_WITHIN,
    OpenBreaker,
    Status,
    TaskFigures,
    WorkerFigures,
    read_status,
)

HEADINGS = (
    *("queue", "task", "queued", "later", "retry", "started", "canceling", "done 1 h", "failed 1 h", "oldest due"),
)
FLOW_HEADINGS = (
    *("flow", "started", "work due", "work held", "waiting for people", "ending", "done 1 h", "failed 1 h"),
)
CLEAR = "\x1b[2J\x1b[H"  # what a terminal shows, before the next look


class Command(BaseCommand):
    help = (
        "Show the workers that are alive, open circuit breakers and, by queue and task, the runs that are queued "
        "(due), delayed (waiting for their time; of these, for another attempt), started (of these, canceling), "
        "and completed or failed in the last hour; by flow, the runs that are started, are being ended, have completed "
        "or failed in the last hour, the steps and items of maps that are due or held by workers, and the steps that "
        "wait for people. Tasks and flows without any of these are left out. Due runs are counted up to "
        f"{COUNT_LIMIT:,} for each task or step, delayed and started ones up to {COUNT_LIMIT:,} in all; ended ones are "
        f"looked for among the newest {FAILED_REACH:,} runs, runs of flows among the newest {FLOW_REACH:,}."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--format",
            choices=["text", "json"],
            default="text",
            help="text to read (the default), or one JSON object whose keys stay the same between versions",
        )
        parser.add_argument(
            "--database",
            metavar="ALIAS",
            choices=list(connections),
            help='the database to ask (default: CATBIRD["DATABASE"])',
        )

        parser.add_argument(
            "--watch", type=_seconds_between, metavar="SECONDS", help="show it again and again, so often"
        )

    def handle(self, **options: Any) -> None:
        self._show(options)
        try:
            while options["watch"] is not None:
                time.sleep(options["watch"])
                self._show(options)
        except KeyboardInterrupt:
            self.stdout.write("")

    def _show(self, options: dict[str, Any]) -> None:
        using = options["database"] or get_settings().database
        status = _read(using)
        if options["watch"] is not None and options["format"] == "text" and self.stdout.isatty():
            self.stdout.write(CLEAR, ending="")
        if options["format"] == "json":
            self.stdout.write(json.dumps(as_json(status, database=using), indent=2))
        else:
            self.stdout.write(as_text(status))
        self.stdout.flush()


def _seconds_between(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0.1 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 86400")
    return seconds


def _read(using: str) -> Status:
    try:
        require_current_schema(using=using)
        return read_status(using=using)
    except SchemaMismatch as error:
        raise CommandError(str(error)) from error
    except OperationalError as error:
        raise CommandError(f"database {using!r} does not answer: {str(error).strip()}") from error


def as_json(status: Status, *, database: str) -> dict[str, Any]:
    """The status as plain values. Ages are in seconds; `count_limit` queued runs means: at least so many."""
    return {
        "database": database,
        "workers": {
            "alive": status.workers.alive,
            "sleeping": status.workers.sleeping,
            "slots": status.workers.slots,
            "silent": status.workers.silent,
            "draining": status.workers.draining,
            "listening": status.workers.listening,
            "abandoned_handlers": status.workers.abandoned,
        },
        "oldest_due_age": _seconds(status.oldest_due_age),
        "tasks": [
            {
                "queue": row.queue,
                "task": row.task,
                "queued": row.queued,
                "delayed": row.delayed,
                "retrying": row.retrying,
                "started": row.started,
                "canceling": row.canceling,
                "completed_last_hour": row.completed,
                "failed_last_hour": row.failed,
                "oldest_due_age": _seconds(row.oldest_due_age),
            }
            for row in status.tasks
        ],
        "flows": [
            {
                "flow": row.flow,
                "started": row.started,
                "ending": row.ending,
                "work_due": row.due_work,
                "work_held": row.held_work,
                "waiting_for_people": row.waiting_for_people,
                "completed_last_hour": row.completed,
                "failed_last_hour": row.failed,
            }
            for row in status.flows
        ],
        "open_breakers": [
            {"task": breaker.task, "failures": breaker.failures, "open_for": _seconds(breaker.open_for)}
            for breaker in status.breakers
        ],
        "count_limit": COUNT_LIMIT,
        "failed_reach": FAILED_REACH,
        "flow_reach": FLOW_REACH,
        "failed_within": _seconds(FAILED_WITHIN),
    }


def _seconds(age: timedelta | None) -> float | None:
    return None if age is None else round(age.total_seconds(), 3)


def as_text(status: Status) -> str:
    """The status as lines to read."""
    lines = [_workers_line(status.workers), *(_breaker_line(breaker) for breaker in status.breakers), ""]
    if not status.tasks and not status.flows:
        return "\n".join([*lines, "Nothing is queued, started or has ended in the last hour."])
    tasks = _table([HEADINGS, *(_cells(row) for row in status.tasks)], words=2) if status.tasks else []
    flows = _table([FLOW_HEADINGS, *(_flow_cells(row) for row in status.flows)], words=1) if status.flows else []
    return "\n".join([*lines, *tasks, *([""] if tasks and flows else []), *flows])


def _workers_line(workers: WorkerFigures) -> str:
    if not workers.alive:
        line = "No worker is alive: start one with `manage.py catbird_worker`"
    else:
        line = (
            f"{_counted(workers.alive, 'worker')} alive ({_counted(workers.slots, 'slot')}, {workers.sleeping} asleep)"
        )
        polling = workers.alive - workers.listening
        notable = {"polling": polling, "draining": workers.draining, "abandoned handlers": workers.abandoned}
        line += "".join(f", {count} {what}" for what, count in notable.items() if count)
    return f"{line}; {workers.silent} silent." if workers.silent else f"{line}."


def _breaker_line(breaker: OpenBreaker) -> str:
    rest = "one run is tried next" if breaker.open_for < timedelta(0) else f"rests for {in_words(breaker.open_for)}"
    return f"Circuit breaker of {breaker.task} is open after {breaker.failures} failures in a row: {rest}."


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _cells(row: TaskFigures) -> tuple[str, ...]:
    counts = (row.queued, row.delayed, row.retrying, row.started, row.canceling, row.completed, row.failed)
    oldest = "-" if row.oldest_due_age is None else in_words(row.oldest_due_age)
    return row.queue, row.task, *(_capped(count) for count in counts), oldest


def _capped(count: int) -> str:
    return f"{count}+" if count >= COUNT_LIMIT else str(count)


def _flow_cells(row: FlowFigures) -> tuple[str, ...]:
    work = (_capped(row.due_work), _capped(row.held_work))
    return row.flow, str(row.started), *work, *map(str, (row.waiting_for_people, row.ending, row.completed, row.failed))


def _table(rows: list[tuple[str, ...]], *, words: int) -> list[str]:
    """Align columns: so many of words at the left, the figures at the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(_aligned(row, widths, words)).rstrip() for row in rows]


def _aligned(row: tuple[str, ...], widths: list[int], words: int) -> list[str]:
    return [
        cell.ljust(width) if place < words else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
