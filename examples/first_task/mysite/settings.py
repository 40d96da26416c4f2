"""What `startproject` writes, less what the tutorial does not touch, plus catbird_django."""

import os

SECRET_KEY = "only for an example"  # noqa: S105 - never use it elsewhere
DEBUG = True

INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True

# What the tutorial adds.
INSTALLED_APPS += ["catbird_django", "pages"]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "mysite"),
        "CONN_HEALTH_CHECKS": True,
    },
}

INSTALLED_APPS += ["accounts"]
EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"

# What the how-to pages add.
INSTALLED_APPS += ["shop", "press"]
