"""Chooses the database: DATABASE_URL if it is given, else the embedded PostgreSQL; and says when it is of no use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import Error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from django.db.backends.base.base import BaseDatabaseWrapper
    from environ import Env  # type: ignore[import-untyped]  # it ships none

OLDEST_SERVER = 15
SCHEMES = ("postgresql://", "postgres://")
SECONDS_TO_ANSWER = 5


def database_settings(env: Env, *, home: Path, server_settings: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Give the entry of DATABASES; `home` and `server_settings` are those of the embedded server."""
    if url := env("DATABASE_URL", default=""):
        return settings_of_url(env, url)
    if os.name == "nt":
        raise ImproperlyConfigured("The embedded PostgreSQL needs Linux or macOS: set DATABASE_URL to a server's.")
    return {
        "ENGINE": "project.embedded.backend",
        "NAME": "postgres",
        "EMBEDDED": {"home": home, "settings": dict(server_settings or {})},
    }


def settings_of_url(env: Env, url: str) -> dict[str, Any]:
    # Of a scheme it does not know, django-environ prints all parts of the URL, the password too.
    settings: dict[str, Any] = env.db_url_config(url) if url.startswith(SCHEMES) else {}
    if not settings.get("NAME"):
        raise ImproperlyConfigured(
            "DATABASE_URL does not name a PostgreSQL database: "
            "make it postgresql://USER:PASSWORD@HOST:PORT/NAME, or unset it to use the embedded PostgreSQL."
        )
    # libpq waits for minutes when a host drops packets.
    settings["OPTIONS"] = {"connect_timeout": SECONDS_TO_ANSWER, **settings.get("OPTIONS", {})}
    return settings


def why_unusable(connection: BaseDatabaseWrapper) -> str | None:
    """Connect, and say in one line what is wrong with the database and what to do; None when it serves."""
    try:
        connection.ensure_connection()
        version: int = connection.pg_version  # type: ignore[attr-defined]  # of PostgreSQL's wrapper only
    except Error as error:
        return explain(error, embedded="EMBEDDED" in connection.settings_dict)
    if version < OLDEST_SERVER * 10_000:
        return (
            f"DATABASE_URL leads to PostgreSQL {version // 10_000}, and {OLDEST_SERVER} or newer is needed: "
            "name a newer server, or unset it to use the embedded PostgreSQL."
        )
    return None


def explain(error: Error, *, embedded: bool) -> str:
    reason = " ".join(str(error).split())
    if embedded:
        return reason
    return (
        f"DATABASE_URL cannot be used ({reason}): "
        "start that server, correct the URL, or unset it to use the embedded PostgreSQL."
    )
