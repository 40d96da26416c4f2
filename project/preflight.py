"""Says in one line what is wrong with the database before anything is started: `python -m project.preflight`."""

from __future__ import annotations

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from project.database import why_unusable


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    try:
        # The embedded server is started by whoever needs it, and explains itself.
        complaint = None if "EMBEDDED" in connection.settings_dict else why_unusable(connection)
    except ImproperlyConfigured as error:
        complaint = str(error)
    if complaint:
        sys.stderr.write(f"{complaint}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
