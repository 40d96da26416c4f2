"""`manage.py catbird_cancel`: cancel runs of tasks, by number or all that match."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from catbird_django.conf import get_settings
from catbird_django.monitoring import queries
from catbird_django.monitoring.actions import Answers, Shell, cancel_runs
from catbird_django.statuses import TaskStatus

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from catbird_django.models import TaskRun

CANCELABLE = (TaskStatus.QUEUED.value, TaskStatus.STARTED.value)


class Command(BaseCommand):
    help = (
        "Cancel runs of tasks, by their numbers or, with --all, whatever matches --task, --queue and --status. A "
        "queued run is canceled at once; a started one is 'canceling' until its handler has stopped or CANCEL_GRACE is "
        "over; one that has ended stays as it is ('finished'). Exits with 1 if a run is unknown; the "
        "others are canceled all the same."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run_ids", nargs="*", type=int, metavar="RUN", help="numbers of the runs")
        parser.add_argument("--all", action="store_true", help="cancel all runs that match the following")
        parser.add_argument("--task", metavar="NAME", help="only runs of this task")
        parser.add_argument("--queue", metavar="NAME", help="only runs in this queue")
        parser.add_argument(
            "--status", choices=CANCELABLE, help="only queued runs, or only started ones (default: both)"
        )
        parser.add_argument("--yes", action="store_true", help="do not ask before canceling all that match")
        parser.add_argument("--reason", default="", help="why; it is kept with the run")
        parser.add_argument("--format", choices=["text", "json"], default="text", help="how to print the answers")
        parser.add_argument("--database", help='alias of the database (default: CATBIRD["DATABASE"])')

    def handle(self, **options: Any) -> None:
        using = options["database"] or get_settings().database
        run_ids = self._matching(options, using) if options["all"] else self._named(options)
        answers = cancel_runs(
            Shell(), run_ids, reason=options["reason"], using=using, done=self._progress(options, len(run_ids))
        )
        self._print(answers, options)
        unknown = [run_id for run_id, verdict in answers.verdicts.items() if verdict == "unknown"]
        if unknown and not options["all"]:
            raise CommandError(", ".join(f"{run_id}: unknown" for run_id in unknown))

    def _named(self, options: dict[str, Any]) -> list[int]:
        if any(options[option] for option in ("task", "queue", "status")):
            raise CommandError("--task, --queue and --status go with --all")
        if not options["run_ids"]:
            raise CommandError("name at least one run, or say --all (see --help)")
        run_ids: list[int] = options["run_ids"]
        return run_ids

    def _matching(self, options: dict[str, Any], using: str) -> list[int]:
        """The runs that match, once somebody has agreed to cancel so many."""
        if options["run_ids"]:
            raise CommandError("name runs, or say --all; not both")
        runs: QuerySet[TaskRun] = queries.task_runs(using=using).filter(
            status__in=[options["status"]] if options["status"] else CANCELABLE
        )
        if options["queue"]:
            runs = runs.filter(queue=options["queue"])
        if options["task"]:
            named = queries.tasks(using=using).filter(name=options["task"])
            if not named:
                raise CommandError(f"there is no task named {options['task']!r}")
            runs = queries.of_tasks(runs, named)
        run_ids = list(runs.order_by("pk").values_list("pk", flat=True))
        if run_ids and not options["yes"]:
            self._ask(len(run_ids))
        return run_ids

    def _ask(self, count: int) -> None:
        if not sys.stdin.isatty():
            raise CommandError(f"{count} runs match; say --yes to cancel them")
        if input(f"Cancel {count} runs? [y/N] ").strip().lower() not in ("y", "yes"):
            raise CommandError("nothing was canceled")

    def _progress(self, options: dict[str, Any], total: int) -> Any:
        """What shows how far it is: one line that is written over, for people only."""
        if options["format"] == "json" or not self.stdout.isatty():
            return lambda _: None

        def show(done: int) -> None:
            self.stdout.write(f"\r{done} of {total} … ", ending="" if done < total else "\n")
            self.stdout.flush()

        return show

    def _print(self, answers: Answers, options: dict[str, Any]) -> None:
        if options["format"] == "json":
            self.stdout.write(json.dumps(dict(answers.counts) if options["all"] else answers.verdicts))
        elif options["all"]:
            counts = ", ".join(f"{verdict}: {count}" for verdict, count in sorted(answers.counts.items()))
            self.stdout.write(counts or "no run matches")
        else:
            for run_id, verdict in answers.verdicts.items():
                self.stdout.write(f"{run_id}: {verdict}")
