"""The migration operation that installs a frozen copy of the SQL files, and can take it back.

`migrations/sql/<migration>/` holds the files that changed in that migration. What is installed after a migration is,
for each file, the newest copy up to and including it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from django.db import router
from django.db.migrations.operations.base import Operation

if TYPE_CHECKING:
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.migrations.state import ProjectState

FROZEN = Path(__file__).parent / "sql"

# A function's name, and everything that must stay the same for CREATE OR REPLACE to replace it: arguments and result.
FUNCTION = re.compile(r"CREATE OR REPLACE FUNCTION (?P<name>\w+)(?P<signature>.*?)\bLANGUAGE\b", re.DOTALL)


class InstallSQL(Operation):
    """Install the SQL files frozen under this migration's name."""

    reduces_to_sql = True
    reversible = True

    def __init__(self, migration: str) -> None:
        self.migration = migration

    def deconstruct(self) -> tuple[str, list[str], dict[str, object]]:
        return (type(self).__name__, [self.migration], {})

    def describe(self) -> str:
        return f"Install the SQL functions of {self.migration}"

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Functions are no part of Django's state."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        if _applies(app_label, schema_editor):
            _replace(schema_editor, old=_installed_before(self.migration), new=_frozen_in(self.migration))

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        if not _applies(app_label, schema_editor):
            return
        current = _frozen_in(self.migration)
        before = _installed_before(self.migration)
        _replace(schema_editor, old=current, new={name: before.get(name, "") for name in current})


def _applies(app_label: str, schema_editor: BaseDatabaseSchemaEditor) -> bool:
    connection = schema_editor.connection
    return connection.vendor == "postgresql" and router.allow_migrate(connection.alias, app_label)


def _frozen_in(migration: str) -> dict[str, str]:
    """The files that this migration changed: name to text."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((FROZEN / migration).glob("*.sql"))}


def _installed_before(migration: str) -> dict[str, str]:
    """The newest copy of every file from the migrations before this one. (Their names sort in order.)"""
    files: dict[str, str] = {}
    for folder in sorted(FROZEN.iterdir()):
        if folder.is_dir() and folder.name < migration:
            files.update(_frozen_in(folder.name))
    return files


def _replace(schema_editor: BaseDatabaseSchemaEditor, *, old: dict[str, str], new: dict[str, str]) -> None:
    """Install the new text of each file; drop the functions of the old text that it lacks or calls differently."""
    schema_editor.execute(_PIN_SEARCH_PATH)
    # Files refer to each other's functions: bodies are checked when they run, and by the tests.
    schema_editor.execute("SET LOCAL check_function_bodies = off")
    for name, text in new.items():
        for function in _gone(old.get(name, ""), text):
            schema_editor.execute(_DROP % {"name": function})
    for text in new.values():
        if text:
            schema_editor.execute(text, params=None)
    # What follows in this transaction may live in another schema, such as the record of this migration.
    schema_editor.execute(_RESTORE_SEARCH_PATH)


def _gone(old: str, new: str) -> list[str]:
    """Names of the functions in the old text that CREATE OR REPLACE in the new one would not replace."""
    kept = _signatures(new)
    return [name for name, signature in _signatures(old).items() if kept.get(name) != signature]


def _signatures(text: str) -> dict[str, str]:
    return {match["name"]: " ".join(match["signature"].split()) for match in FUNCTION.finditer(text)}


# Functions carry `SET search_path FROM CURRENT`: this is what they freeze. The tables' schema comes first, pg_temp
# last, so that neither a hostile schema nor a temporary table can stand in for ours (R12).
_PIN_SEARCH_PATH = """
SELECT set_config('catbird.search_path', current_setting('search_path'), true),
       set_config('search_path', quote_ident(nspname) || ', pg_temp', true)
FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE pg_class.oid = 'cb_tasks'::regclass
"""

_RESTORE_SEARCH_PATH = "SELECT set_config('search_path', current_setting('catbird.search_path'), true)"

# By name, whatever its arguments: we never overload.
_DROP = """
DO $$
DECLARE
    v_function regprocedure;
BEGIN
    FOR v_function IN
        SELECT oid FROM pg_proc WHERE proname = '%(name)s' AND pronamespace = current_schema()::regnamespace
    LOOP
        EXECUTE 'DROP FUNCTION ' || v_function;
    END LOOP;
END
$$
"""
