"""Which SQL is installed in a database, and which one this code calls."""

from __future__ import annotations

from importlib import resources

from catbird_django import errors
from catbird_django.engine.call import Function

SCHEMA_VERSION = Function("cb_schema_version")


def expected_version() -> str:
    """The migration that installs the SQL which this code calls."""
    frozen = resources.files("catbird_django.migrations") / "sql"
    return max(folder.name for folder in frozen.iterdir() if folder.is_dir())


def installed_version(*, using: str) -> str | None:
    """The migration that last installed our SQL in this database; None when there is none."""
    try:
        return str(SCHEMA_VERSION.value(using))
    except errors.SchemaMismatch:
        return None


def require_current_schema(*, using: str) -> None:
    """Raise SchemaMismatch unless the installed SQL is the one this code calls, or a later one.

    Later SQL still serves earlier code: that is what a rolling deploy looks like.
    """
    installed, expected = installed_version(using=using), expected_version()
    if installed is None or installed < expected:
        raise errors.SchemaMismatch(
            f"database {using!r} has {'no catbird SQL' if installed is None else f'the SQL of {installed}'}, "
            f"but this code needs {expected}: run `manage.py migrate catbird --database {using}`"
        )
