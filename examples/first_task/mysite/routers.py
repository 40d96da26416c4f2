"""Sends the models of catbird to the second database, and only them."""

from typing import Any

ALIAS = "work"


class CatbirdRouter:
    """Reads, writes and migrations of the app `catbird` go to `work`; nothing else does."""

    def db_for_read(self, model: Any, **_: Any) -> str | None:
        return ALIAS if model._meta.app_label == "catbird" else None

    def db_for_write(self, model: Any, **_: Any) -> str | None:
        return self.db_for_read(model)

    def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool:
        return (db == ALIAS) == (app_label == "catbird")
