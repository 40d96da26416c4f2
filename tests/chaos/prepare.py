"""Bring a database to the present schema and make the tasks and flows known: `python -m tests.chaos.prepare`."""

from __future__ import annotations

import django
from django.core.management import call_command


def main() -> None:
    django.setup()
    from catbird_django.client.registration import register_flows, register_tasks
    from catbird_django.definitions.registry import registry

    call_command("migrate", verbosity=0)
    register_tasks(registry.tasks.values(), using="default")
    register_flows([draft.definition for draft in registry.flows.values()], using="default")


if __name__ == "__main__":
    main()
