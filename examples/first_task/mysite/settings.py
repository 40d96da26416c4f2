"""What `startproject` writes, less what the tutorial does not touch, plus catbird_django."""

import os
from typing import Any

SECRET_KEY = "only for an example"  # noqa: S105 - never use it elsewhere
DEBUG = True

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "catbird_django",
    "pages",
    "accounts",
]

DATABASES: dict[str, Any] = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "mysite"),
    },
}

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
USE_TZ = True
