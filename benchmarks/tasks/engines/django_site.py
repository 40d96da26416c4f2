"""The smallest Django project for an engine that is a Django app."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import django
from django.conf import settings

from benchmarks.engines.exchange import dsn


def configure(*, apps: list[str], tasks: dict[str, Any]) -> None:
    """Set Django up with these apps and this backend of its tasks, once."""
    if settings.configured:
        return
    address = urlsplit(dsn())
    query = parse_qs(address.query)
    settings.configure(
        SECRET_KEY="bench",
        USE_TZ=True,
        INSTALLED_APPS=["django.contrib.contenttypes", *apps],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": address.path[1:],
                "USER": address.username,
                "HOST": query["host"][0],
                "PORT": query["port"][0],
                "CONN_MAX_AGE": None,
            }
        },
        TASKS={"default": tasks},
        LOGGING_CONFIG=None,
    )
    django.setup()


def migrate() -> None:
    """Make the tables."""
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
