"""R13: migrations go up, down and up again, with data."""

from django.core.management import call_command
from django.db import connections
from pytest_django.plugin import DjangoDbBlocker

from catbird_django.engine.schema import expected_version, installed_version
from catbird_django.models import TaskRun
from tests.integration.conftest import ScratchDatabase
from tests.support import TaskRow


def migrate(alias: str, target: str | None = None) -> None:
    call_command("migrate", *(["catbird", target] if target else []), database=alias, verbosity=0)


def names(alias: str, query: str) -> set[str]:
    with connections[alias].cursor() as cursor:
        cursor.execute(query)
        return {name for (name,) in cursor.fetchall()}


FUNCTIONS = r"SELECT proname FROM pg_proc WHERE proname ~ '^_?cb_'"
TABLES = r"SELECT relname FROM pg_class WHERE relname ~ '^cb_' AND relkind = 'r'"


def queue_a_run(alias: str) -> int:
    from catbird_django.engine.tasks import register_tasks, run_tasks

    row = TaskRow(
        name="kept",
        queue="default",
        description="",
        handler="",
        max_retries=0,
        max_lost=5,
        input_schema={},
        output_schema={},
        fingerprint="1",
    )
    register_tasks([row], using=alias)
    [answer] = run_tasks("kept", ['{"n": 1}'], using=alias)
    assert answer.run_id is not None
    return answer.run_id


def test_down_to_the_tables_and_up_again_keeps_the_data(scratch_database: ScratchDatabase) -> None:
    alias = scratch_database("scratch")
    migrate(alias)
    functions = names(alias, FUNCTIONS)
    run_id = queue_a_run(alias)

    migrate(alias, "0001")
    assert names(alias, FUNCTIONS) == set()
    assert TaskRun.objects.using(alias).get(id=run_id).input == {"n": 1}

    migrate(alias)
    assert names(alias, FUNCTIONS) == functions
    assert TaskRun.objects.using(alias).get(id=run_id).input == {"n": 1}
    assert queue_a_run(alias) > run_id


def test_zero_drops_everything_and_up_again_works(scratch_database: ScratchDatabase) -> None:
    alias = scratch_database("scratch")
    migrate(alias)
    queue_a_run(alias)

    migrate(alias, "zero")
    assert names(alias, FUNCTIONS) | names(alias, TABLES) == set()
    assert installed_version(using=alias) is None

    migrate(alias)
    assert installed_version(using=alias) == expected_version()
    queue_a_run(alias)


def test_another_vendors_database_gets_no_functions_and_no_error(django_db_blocker: DjangoDbBlocker) -> None:
    """A project may route catbird to one alias only; `migrate` on the others must not stumble."""
    connections.databases["lite"] = {
        **connections["default"].settings_dict,
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": ":memory:",
        "OPTIONS": {},
    }
    try:
        with django_db_blocker.unblock():
            migrate("lite")
            tables = connections["lite"].introspection.table_names()
    finally:
        connections["lite"].close()
        del connections.databases["lite"]
        delattr(connections._connections, "lite")

    assert "cb_task_runs" in tables
