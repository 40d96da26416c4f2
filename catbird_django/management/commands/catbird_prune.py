"""`manage.py catbird_prune`: remove old finished runs."""

from __future__ import annotations

import argparse
import json
import re
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from catbird_django.conf import get_settings
from catbird_django.engine.retention import prune_tasks
from catbird_django.errors import CatbirdError
from catbird_django.statuses import TERMINAL_STATUSES

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Command(BaseCommand):
    help = (
        "Remove runs of tasks that ended a while ago. Live runs are never touched. Works in small transactions, so it "
        "can run beside workers, be interrupted and be repeated."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--older-than", required=True, type=_age, metavar="AGE", help="as in 30d, 12h, 90m: how long ago they ended"
        )
        parser.add_argument(
            "--status",
            nargs="+",
            choices=sorted(TERMINAL_STATUSES),
            default=sorted(TERMINAL_STATUSES),
            help="only runs that ended so (default: however they ended)",
        )
        parser.add_argument("--format", choices=["text", "json"], default="text", help="how to print the result")
        parser.add_argument("--database", help='alias of the database (default: CATBIRD["DATABASE"])')

    def handle(self, **options: Any) -> None:
        using = options["database"] or get_settings().database
        shows_progress = options["format"] == "text" and self.stdout.isatty()
        removed = 0
        try:
            for count, last_id in prune_tasks(options["status"], options["older_than"], using=using):
                removed += count
                if shows_progress:
                    self.stdout.write(f"\rlooked at runs up to {last_id}, removed {removed} … ", ending="")
                    self.stdout.flush()
        except CatbirdError as error:
            raise CommandError(str(error)) from error
        if options["format"] == "json":
            self.stdout.write(json.dumps({"removed": removed}))
        else:
            self.stdout.write(f"{chr(13) if shows_progress else ''}removed {removed} runs")


def _age(text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age: write a number and s, m, h, d or w, as in 30d")
    return timedelta(**{UNITS[match[2]]: int(match[1])})
