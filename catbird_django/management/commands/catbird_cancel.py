"""`manage.py catbird_cancel`: cancel runs of tasks."""

from __future__ import annotations

import getpass
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from catbird_django.conf import get_settings
from catbird_django.engine.cancel import cancel_tasks
from catbird_django.statuses import CancelVerdict


class Command(BaseCommand):
    help = (
        "Cancel runs of tasks. A queued run is canceled at once; a started one is 'canceling' until its handler has "
        "stopped or CANCEL_GRACE is over; one that has ended stays as it is ('finished'). "
        "Exits with 1 if a run is unknown; the others are canceled all the same."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run_ids", nargs="+", type=int, metavar="RUN", help="numbers of the runs")
        parser.add_argument("--reason", default="", help="why; it is kept with the run")
        parser.add_argument("--format", choices=["text", "json"], default="text", help="how to print the answers")
        parser.add_argument("--database", help='alias of the database (default: CATBIRD["DATABASE"])')

    def handle(self, **options: Any) -> None:
        settings = get_settings()
        verdicts = cancel_tasks(
            options["run_ids"],
            reason=options["reason"],
            actor=_whoami(),
            notify=settings.notify,
            using=options["database"] or settings.database,
        )
        answers = dict(zip(options["run_ids"], verdicts, strict=True))
        if options["format"] == "json":
            self.stdout.write(json.dumps(answers))
        else:
            for run_id, verdict in answers.items():
                self.stdout.write(f"{run_id}: {verdict.value}")
        unknown = [run_id for run_id, verdict in answers.items() if verdict is CancelVerdict.UNKNOWN]
        if unknown:
            raise CommandError(", ".join(f"{run_id}: unknown" for run_id in unknown))


def _whoami() -> str:
    try:
        return f"command:{getpass.getuser()}"
    except (KeyError, OSError):  # an account without a name, as in some containers
        return "command"
