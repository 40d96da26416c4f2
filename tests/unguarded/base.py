"""PostgreSQL, without the guard of Django's test cases: it forbids aliases that were not there when the test began."""

from __future__ import annotations

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    def ensure_connection(self) -> None:
        if self.connection is None:
            with self.wrap_database_errors:
                self.connect()
