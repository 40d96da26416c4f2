"""`manage.py catbird_signal`: give a step of a flow run the signal that it waits for."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError

from catbird_django.conf import get_settings
from catbird_django.errors import CatbirdError, SignalRefused
from catbird_django.management.json_arguments import USAGE, add_json_arguments, read_json
from catbird_django.monitoring.actions import Shell, send_signal
from catbird_django.statuses import SignalVerdict


class Command(BaseCommand):
    help = (
        "Give a step of a flow run the signal that it waits for, such as an approval. Exits with 0 if it was accepted, "
        "with 1 if it was refused (it was given before, came late, is malformed, …; that is on record), with 2 if it "
        "could not be given: what was given is not JSON, or a bad option."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run_id", type=int, metavar="RUN", help="number of the flow run")
        parser.add_argument("step", metavar="STEP", help="name of the step")
        add_json_arguments(parser, "payload", '{"by": "kim", "ok": true}')
        parser.add_argument("--actor", default="", help="who gives it (default: command:, and your account)")
        parser.add_argument("--dedupe-id", metavar="ID", help="the same again gets the first answer")
        parser.add_argument("--format", choices=["text", "json"], default="text", help="how to print the answer")
        parser.add_argument("--database", metavar="ALIAS", help='alias of the database (default: CATBIRD["DATABASE"])')

    def handle(self, **options: Any) -> None:
        refusal = _send(options)
        verdict = SignalVerdict.ACCEPTED if refusal is None else refusal.verdict
        if options["format"] == "json":
            answer = {"run_id": options["run_id"], "step": options["step"], "verdict": verdict.value}
            self.stdout.write(json.dumps(answer))
        elif refusal is None:
            self.stdout.write(f"{options['step']} of run {options['run_id']}: {verdict.value}")
        if refusal is not None:
            raise CommandError(str(refusal))


def _send(options: dict[str, Any]) -> SignalRefused | None:
    """Give the signal; return the refusal, if it does not count."""
    using = options["database"] or get_settings().database
    payload = read_json(options, "payload")
    try:
        send_signal(
            Shell(on_behalf_of=options["actor"]),
            options["run_id"],
            options["step"],
            payload,
            dedupe_id=options["dedupe_id"],
            using=using,
        )
    except SignalRefused as refusal:
        return refusal
    except CatbirdError as error:
        raise CommandError(str(error), returncode=USAGE) from error
    except OperationalError as error:
        raise CommandError(f"database {using!r} does not answer: {str(error).strip()}") from error
    return None
