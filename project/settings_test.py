"""Settings of the tests: a cluster of its own that trades safety for speed, and a database name of this run's own."""

import os

from project.database import database_settings

# Before the import: the real settings would make a key to keep.
os.environ.setdefault("SECRET_KEY", "only for tests")

from project.settings import *  # noqa: F403 - the tests' settings are the project's with a few changed
from project.settings import BASE_DIR, env

DEBUG = False
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

SERVER_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "200",
}

_database = database_settings(env, home=BASE_DIR / ".catbird-test", server_settings=SERVER_SETTINGS)
# A statement that hangs fails with its text, long before the test's own timeout.
_database.setdefault("OPTIONS", {}).setdefault("options", "-c statement_timeout=60s -c lock_timeout=30s")
# Two runs at once in one checkout must not create, and drop, the same database.
_database["TEST"] = {"NAME": f"test_catbird_{os.getpid()}"}

DATABASES = {"default": _database}
