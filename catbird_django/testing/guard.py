"""Refuses to work on a database that is not there for tests."""

from __future__ import annotations

from django.db import connections
from django.test import utils

from catbird_django.conf import get_settings
from catbird_django.errors import CatbirdError

PREFIX = "test_"  # what Django, without other orders, puts before the name of a database to test on


class OnlyInTests(CatbirdError):
    """The clock was to be turned, or runs worked off, in a database that is not one of tests."""


def alias_of_tests(using: str | None) -> str:
    """The alias of the database to use, by default catbird's; raise OnlyInTests unless it was made for tests."""
    using = using or get_settings().database
    if not _is_test_run():
        raise OnlyInTests(
            "catbird_django.testing works in tests only: under Django's test runner, or pytest with pytest-django"
        )
    if not _is_made_for_tests(using):
        name = connections[using].settings_dict["NAME"]
        raise OnlyInTests(f"database {name!r} (alias {using!r}) was not made by the test runner: nothing is done to it")
    return using


def _is_test_run() -> bool:
    """Whether `setup_test_environment()` was called, as every test runner for Django does."""
    return hasattr(utils._TestState, "saved_data")  # noqa: SLF001 - Django tells it nowhere else


def _is_made_for_tests(using: str) -> bool:
    settings = connections[using].settings_dict
    chosen = (settings.get("TEST") or {}).get("NAME")
    return str(settings["NAME"]).startswith((PREFIX, *([str(chosen)] if chosen else [])))
