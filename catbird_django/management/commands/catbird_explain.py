"""`manage.py catbird_explain`: say what each unfinished step of a flow run waits for."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError

from catbird_django.client.explain import explain
from catbird_django.client.flow_handles import FlowHandle
from catbird_django.conf import get_settings
from catbird_django.errors import CatbirdError


class Command(BaseCommand):
    help = (
        "Say how a run of a flow is, and what each of its unfinished steps waits for: other steps, a signal and who "
        "may give it, its time, a worker, or its items and how many of them have ended. Exits with 1 if there is no "
        "such run."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run_id", type=int, metavar="RUN", help="number of the flow run")
        parser.add_argument("--format", choices=["text", "json"], default="text", help="how to print the answer")
        parser.add_argument("--database", metavar="ALIAS", help='alias of the database (default: CATBIRD["DATABASE"])')

    def handle(self, **options: Any) -> None:
        using = options["database"] or get_settings().database
        try:
            requirements = explain(options["run_id"], using=using)
            status = FlowHandle[Any](options["run_id"], using=using).status()
        except CatbirdError as error:
            raise CommandError(str(error)) from error
        except OperationalError as error:
            raise CommandError(f"database {using!r} does not answer: {str(error).strip()}") from error
        if options["format"] == "json":
            unmet = [requirement.as_json() for requirement in requirements]
            self.stdout.write(json.dumps({"run_id": options["run_id"], "status": status.value, "requirements": unmet}))
        else:
            lines = [f"run {options['run_id']}: {status.value}", *map(str, requirements)]
            self.stdout.write("\n".join(lines))
