"""The Django app: checks, discovery of tasks, and their registration after `migrate`."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _


class CatbirdConfig(AppConfig):
    name = "catbird_django"
    label = "catbird"
    verbose_name = _("Catbird")
    default_auto_field = "django.db.models.BigAutoField"
    default = True

    def ready(self) -> None:
        from catbird_django.checks import check_database, check_definitions, check_settings
        from catbird_django.discovery import discover

        checks.register(check_settings, "catbird")
        checks.register(check_definitions, "catbird")
        checks.register(check_database, checks.Tags.database)
        post_migrate.connect(register_after_migrate, sender=self)
        discover()


def register_after_migrate(*, using: str, **_: Any) -> None:
    """Enter the tasks and flows that were discovered into a database that was just migrated."""
    from catbird_django.client.registration import register_flows, register_tasks
    from catbird_django.conf import get_settings
    from catbird_django.definitions.registry import registry
    from catbird_django.engine.schema import expected_version, installed_version

    # Not ours, not (or no longer) migrated, or on the way to another version: nothing to register into.
    if using == get_settings().database and installed_version(using=using) == expected_version():
        # What only other processes handle, they register: they know it better.
        register_tasks((task for task in registry.tasks.values() if task.handler), using=using)
        # What cannot work is reported by the checks, and must not keep the database from being migrated.
        sound = (flow for flow in registry.flows.values() if not flow.problems())
        register_flows((flow.definition for flow in sound), using=using)
