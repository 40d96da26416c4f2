"""`manage.py catbird_cancel`: cancel runs of tasks or of flows, by number or all that match."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from catbird_django.conf import get_settings
from catbird_django.monitoring import queries
from catbird_django.monitoring.actions import Answers, Shell, cancel_runs
from catbird_django.statuses import FlowStatus, RunKind, TaskStatus

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from catbird_django.models import FlowRun, TaskRun

CANCELABLE = (TaskStatus.QUEUED.value, TaskStatus.STARTED.value)


class Command(BaseCommand):
    help = (
        "Cancel runs of tasks or, with --flows, of flows: by their numbers or, with --all, whatever matches --task, "
        "--flow, --queue and --status. A queued run of a task is canceled at once; what has started is 'canceling' "
        "until its handlers have stopped or CANCEL_GRACE is over; one that has ended stays as it is ('finished'). "
        "Exits with 1 if a run is unknown; the others are canceled all the same."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run_ids", nargs="*", type=int, metavar="RUN", help="numbers of the runs")
        parser.add_argument("--flows", action="store_true", help="runs of flows, not of tasks")
        parser.add_argument("--all", action="store_true", help="cancel all runs that match the following")
        parser.add_argument("--task", metavar="NAME", help="only runs of this task")
        parser.add_argument("--flow", metavar="NAME", help="only runs of this flow; goes with --flows")
        parser.add_argument("--queue", metavar="NAME", help="only runs in this queue")
        parser.add_argument(
            "--status", choices=CANCELABLE, help="only queued runs of tasks, or only started ones (default: both)"
        )
        parser.add_argument("--yes", action="store_true", help="do not ask before canceling all that match")
        parser.add_argument("--reason", default="", help="why; it is kept with the run")
        parser.add_argument("--format", choices=["text", "json"], default="text", help="how to print the answers")
        parser.add_argument("--database", help='alias of the database (default: CATBIRD["DATABASE"])')

    def handle(self, **options: Any) -> None:
        using = options["database"] or get_settings().database
        _refuse_contradictions(options)
        run_ids = self._matching(options, using) if options["all"] else options["run_ids"]
        answers = cancel_runs(
            Shell(),
            run_ids,
            kind=RunKind.FLOW if options["flows"] else RunKind.TASK,
            reason=options["reason"],
            using=using,
            done=self._progress(options, len(run_ids)),
        )
        self._print(answers, options)
        unknown = [run_id for run_id, verdict in answers.verdicts.items() if verdict == "unknown"]
        if unknown and not options["all"]:
            raise CommandError(", ".join(f"{run_id}: unknown" for run_id in unknown))

    def _matching(self, options: dict[str, Any], using: str) -> list[int]:
        """The runs that match, once somebody has agreed to cancel so many."""
        runs = _flow_runs(options, using) if options["flows"] else _task_runs(options, using)
        if options["queue"]:
            runs = runs.filter(queue=options["queue"])
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


def _refuse_contradictions(options: dict[str, Any]) -> None:
    if not options["all"] and any(options[option] for option in ("task", "flow", "queue", "status")):
        raise CommandError("--task, --flow, --queue and --status go with --all")
    if not options["all"] and not options["run_ids"]:
        raise CommandError("name at least one run, or say --all (see --help)")
    if options["all"] and options["run_ids"]:
        raise CommandError("name runs, or say --all; not both")
    if options["flows"] and (options["task"] or options["status"]):
        raise CommandError("--task and --status are about tasks, and do not go with --flows")
    if options["flow"] and not options["flows"]:
        raise CommandError("--flow goes with --flows")


def _task_runs(options: dict[str, Any], using: str) -> QuerySet[Any]:
    statuses = [options["status"]] if options["status"] else CANCELABLE
    runs: QuerySet[TaskRun] = queries.task_runs(using=using).filter(status__in=statuses)
    if options["task"]:
        named = queries.tasks(using=using).filter(name=options["task"])
        if not named:
            raise CommandError(f"there is no task named {options['task']!r}")
        runs = queries.of_tasks(runs, named)
    return runs


def _flow_runs(options: dict[str, Any], using: str) -> QuerySet[Any]:
    runs: QuerySet[FlowRun] = queries.flow_runs(using=using).filter(status=FlowStatus.STARTED)
    if options["flow"]:
        if not queries.flows(using=using).filter(name=options["flow"]).exists():
            raise CommandError(f"there is no flow named {options['flow']!r}")
        runs = runs.filter(flow_name=options["flow"])
    return runs
