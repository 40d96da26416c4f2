"""A small project whose work is done by workers: no pages at all."""

import os

SECRET_KEY = "only for an example"  # noqa: S105 - never use it elsewhere

INSTALLED_APPS = ["catbird_django", "bills"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "ledger"),
        "CONN_HEALTH_CHECKS": True,
    },
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
