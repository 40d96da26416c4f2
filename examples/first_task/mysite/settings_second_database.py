"""The same project with the tables of catbird in a second database, in a schema of their own."""

import os

from mysite.settings import *  # noqa: F403 - the same project
from mysite.settings import DATABASES

DATABASES["work"] = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": os.environ.get("WORK_DATABASE", "work"),
    "OPTIONS": {"options": "-c search_path=background"},
}
DATABASE_ROUTERS = ["mysite.routers.CatbirdRouter"]
CATBIRD = {"DATABASE": "work"}
