"""Settings of the workers that faults happen to. The campaign itself adds its database under an alias of its own."""

import json
import os

import environ

from project.database import settings_of_url

SECRET_KEY = "only for fault tests"
DEBUG = False
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "catbird_django", "tests.chaos"]

_url = os.environ.get("DATABASE_URL", "")
# Connections are kept, as many projects do: what a handler leaves on one is then there for the next.
DATABASES = {"default": {**settings_of_url(environ.Env(), _url), "CONN_MAX_AGE": None}} if _url else {}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Whoever queues runs writes all events, too: the doctor judges only histories that begin with the birth.
CATBIRD: dict[str, object] = {"EVENTS": "all", **json.loads(os.environ.get("CATBIRD", "{}"))}

USE_TZ = True
TIME_ZONE = "UTC"
