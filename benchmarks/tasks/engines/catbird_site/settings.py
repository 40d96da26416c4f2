"""Defaults everywhere; only the database comes from outside."""

import json
import os
from urllib.parse import parse_qs, urlsplit

_address = urlsplit(os.environ["BENCH_DSN"])
_query = parse_qs(_address.query)
_chosen = json.loads(os.environ.get("BENCH_OPTIONS", "{}"))

SECRET_KEY = "bench"
USE_TZ = True
INSTALLED_APPS = ["catbird_django", "benchmarks.tasks.engines.catbird_site"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _address.path[1:],
        "USER": _address.username,
        "HOST": _query["host"][0],
        "PORT": _query["port"][0],
        "CONN_MAX_AGE": None,
        "OPTIONS": {name: value for name, value in _chosen.items() if name == "prepare_threshold"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# For trying out others than the defaults: BENCH_CATBIRD='{"PREFETCH": 400}'.
CATBIRD = json.loads(os.environ.get("BENCH_CATBIRD", "{}"))
