"""`manage.py catbird_doctor`: look for what should not be, and say what to do."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError, InterfaceError, connections

from catbird_django.conf import get_settings
from catbird_django.engine.doctor import Finding
from catbird_django.errors import CatbirdError
from catbird_django.monitoring.doctor import ERROR, by_check, diagnose, is_cut_off

SHOWN = 10  # findings of one check, in text

COULD_NOT_CHECK = 2


class Command(BaseCommand):
    help = (
        "Check what must always be true of runs and workers, and the health of the database. Changes nothing. "
        "The exit code is 0 when there are no errors, 1 when there are, and 2 when the check could not be made."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--strict", action="store_true", help="let warnings count as errors for the exit code")
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

    def handle(self, **options: Any) -> None:
        using = options["database"] or get_settings().database
        try:
            findings = diagnose(using=using)
        except (CatbirdError, DatabaseError, InterfaceError) as error:
            self.stderr.write(f"could not check database {using!r}: {str(error).strip()}")
            sys.exit(COULD_NOT_CHECK)
        written = as_json(findings, database=using) if options["format"] == "json" else as_text(findings)
        self.stdout.write(written)
        if any(finding.severity == ERROR or options["strict"] for finding in findings):
            sys.exit(1)


def as_json(findings: Sequence[Finding], *, database: str) -> str:
    """All findings, as one JSON object."""
    report = {
        "database": database,
        "errors": _count(findings, is_error=True),
        "warnings": _count(findings, is_error=False),
        "findings": [finding._asdict() for finding in findings],
    }
    return json.dumps(report, indent=2)


def as_text(findings: Sequence[Finding]) -> str:
    """The findings of each check below what to do about them."""
    if not findings:
        return "All is well."
    errors, warnings = _count(findings, is_error=True), _count(findings, is_error=False)
    blocks = [_block(group) for group in by_check(findings)]
    return "\n\n".join([*blocks, f"{_counted(errors, 'error')}, {_counted(warnings, 'warning')}."])


def _block(group: Sequence[Finding]) -> str:
    first = group[0]
    lines = [f"{first.severity} {first.check_id}: {first.advice}"]
    lines += [f"  {_name(finding)} {finding.message}" for finding in group[:SHOWN]]
    if len(group) > SHOWN:
        lines.append(f"  … and {len(group) - SHOWN} more{' at least' if is_cut_off(group) else ''}")
    return "\n".join(lines)


def _name(finding: Finding) -> str:
    return finding.subject if finding.run_id is None else f"{finding.subject}, run {finding.run_id}:"


def _count(findings: Sequence[Finding], *, is_error: bool) -> int:
    return sum((finding.severity == ERROR) is is_error for finding in findings)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
