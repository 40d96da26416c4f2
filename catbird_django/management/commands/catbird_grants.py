"""`manage.py catbird_grants`: let database roles produce work, do it, or look on."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, transaction

from catbird_django.conf import get_settings
from catbird_django.engine import grants
from catbird_django.errors import CatbirdError

KINDS = {
    "producer": "may queue work through the producing functions, and touch no table",
    "worker": "may call every function, and read and write catbird's tables",
    "viewer": "may read every column that holds no payload",
}


class Command(BaseCommand):
    help = (
        "Grant database roles what they need to use catbird beside its owner. The roles must exist. "
        "Run it as the owner of catbird's tables, and again after each migrate. Saying it again changes nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        for kind, meaning in KINDS.items():
            parser.add_argument(f"--{kind}", nargs="+", default=[], metavar="ROLE", help=f"roles that {meaning}")
        parser.add_argument("--revoke", nargs="+", default=[], metavar="ROLE", help="take everything back from roles")
        parser.add_argument("--database", help='alias of the database (default: CATBIRD["DATABASE"])')

    def handle(self, **options: Any) -> None:
        using = options["database"] or get_settings().database
        wanted = [(role, kind) for kind in KINDS for role in options[kind]]
        if not wanted and not options["revoke"]:
            raise CommandError("name at least one role, as in --worker shop_worker (see --help)")
        try:
            with transaction.atomic(using=using):
                self._apply(wanted, options["revoke"], using)
        except (DatabaseError, CatbirdError) as error:
            raise CommandError(f"{str(error).strip()} (nothing was granted)") from error

    def _apply(self, wanted: list[tuple[str, str]], revoked: list[str], using: str) -> None:
        for role in revoked:
            grants.revoke(role, using=using)
            self.stdout.write(f"{role}: everything taken back")
        for role, kind in wanted:
            grants.grant(role, kind, using=using)
            self.stdout.write(f"{role}: {kind}, {KINDS[kind]}")
