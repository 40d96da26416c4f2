"""Freeze the SQL files that changed into a new migration.

    python scripts/freeze_sql.py 0007_expire_signals          a new migration with what changed since the last one
    python scripts/freeze_sql.py 0002_functions --again       the same migration anew; only while it is unreleased

Copies every changed file of catbird_django/sql/ to catbird_django/migrations/sql/<migration>/, makes
`cb_schema_version()` return its name, and writes the migration that installs the copies.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "catbird_django"
PRESENT = PACKAGE / "sql"
MIGRATIONS = PACKAGE / "migrations"
FROZEN = MIGRATIONS / "sql"

TEMPLATE = """\
from django.db import migrations

from catbird_django.migrations._install_sql import InstallSQL


class Migration(migrations.Migration):
    dependencies = [("catbird", "{previous}")]

    operations = [InstallSQL("{migration}")]
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("migration", help="name of the migration, such as 0007_expire_signals")
    parser.add_argument("--again", action="store_true", help="freeze an unreleased migration anew")
    options = parser.parse_args()
    try:
        changed = freeze(options.migration, again=options.again)
    except ValueError as error:
        sys.exit(f"freeze_sql: {error}")
    sys.stdout.write(f"{options.migration}: froze {', '.join(changed)}\n")


def freeze(migration: str, *, again: bool = False) -> list[str]:
    """Freeze what changed; return the names of the files."""
    target = FROZEN / migration
    check_name(migration, exists=target.exists(), again=again)
    write_version(migration)
    changed = changed_files(migration)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name, text in changed.items():
        (target / name).write_text(text)
    write_migration(migration)
    return list(changed)


def check_name(migration: str, *, exists: bool, again: bool) -> None:
    if not re.fullmatch(r"\d{4}_[a-z0-9_]+", migration):
        raise ValueError(f"{migration!r} is not a migration's name: four digits, then words joined by _")
    if exists and not again:
        raise ValueError(f"{migration} is frozen already. A released copy never changes; --again if it is unreleased")
    later = [folder.name for folder in frozen_folders() if folder.name > migration]
    if later:
        raise ValueError(f"{later[0]} comes after {migration}: choose a higher number")


def frozen_folders() -> list[Path]:
    return sorted(path for path in FROZEN.glob("*_*") if path.is_dir())


def changed_files(migration: str) -> dict[str, str]:
    """What the migrations before this one left otherwise: name to text, which is empty for a file that is gone."""
    newest: dict[str, str] = {}
    for folder in frozen_folders():
        if folder.name < migration:
            newest.update({path.name: path.read_text() for path in folder.glob("*.sql")})
    present = {path.name: path.read_text() for path in PRESENT.glob("*.sql")}
    gone = {name: "" for name, text in newest.items() if text and name not in present}
    return {name: text for name, text in sorted({**present, **gone}.items()) if newest.get(name, "") != text}


def write_version(migration: str) -> None:
    path = PRESENT / "version.sql"
    path.write_text(re.sub(r"SELECT '\w+'", f"SELECT '{migration}'", path.read_text()))


def write_migration(migration: str) -> None:
    previous = max(path.stem for path in MIGRATIONS.glob("0*.py") if path.stem < migration)
    (MIGRATIONS / f"{migration}.py").write_text(TEMPLATE.format(previous=previous, migration=migration))


if __name__ == "__main__":
    main()
