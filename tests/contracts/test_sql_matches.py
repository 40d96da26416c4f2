"""Frozen SQL = present SQL = what is in the database = what the gateway calls."""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection

import catbird_django
from catbird_django import engine
from catbird_django.engine.call import Function
from catbird_django.engine.schema import expected_version
from catbird_django.migrations._install_sql import _frozen_in, _installed_before
from catbird_django.models import TaskRun
from catbird_django.statuses import TERMINAL_STATUSES, TaskStatus

PRESENT = Path(catbird_django.__file__).parent / "sql"
SECURITY_DEFINER = {
    "cb_find_signal",
    "cb_run_flows",
    "cb_run_task",
    "cb_run_tasks",
    "cb_signal_flow",
    "cb_wake_tick",
    "cb_wake_workers",
}


def in_files() -> set[str]:
    text = "\n".join(path.read_text() for path in PRESENT.glob("*.sql"))
    return set(re.findall(r"CREATE OR REPLACE FUNCTION (\w+)", text))


def in_database(condition: str = "true") -> dict[str, str]:
    """Our functions that satisfy a condition on pg_proc: name to argument list."""
    with connection.cursor() as cursor:
        cursor.execute(
            rf"""
            SELECT proname, pg_get_function_arguments(oid)
            FROM pg_proc
            WHERE pronamespace = current_schema()::regnamespace AND proname ~ '^_?cb_' AND {condition}
            """
        )
        return dict(cursor.fetchall())


def called() -> dict[str, Function]:
    modules = [import_module(f"{engine.__name__}.{module.name}") for module in iter_modules(engine.__path__)]
    functions = [value for module in modules for value in vars(module).values() if isinstance(value, Function)]
    return {function.name: function for function in functions}


def test_the_frozen_copies_are_the_present_files() -> None:
    """R2, R13: edit sql/, then run scripts/freeze_sql.py."""
    newest = expected_version()
    frozen = _installed_before(newest) | _frozen_in(newest)

    assert frozen == {path.name: path.read_text() for path in PRESENT.glob("*.sql")}


@pytest.mark.django_db
def test_the_database_has_the_functions_of_the_files_and_no_others() -> None:
    assert set(in_database()) == in_files()


@pytest.mark.django_db
def test_no_function_is_overloaded() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT proname FROM pg_proc WHERE proname ~ '^_?cb_' GROUP BY proname HAVING count(*) > 1")
        assert cursor.fetchall() == []


@pytest.mark.django_db
def test_every_public_function_is_called_by_the_gateway() -> None:
    """R3: one function per transition, one gateway function each."""
    assert set(called()) == {name for name in in_files() if not name.startswith("_")}


@pytest.mark.django_db
@pytest.mark.parametrize("name", sorted(called()))
def test_the_gateway_passes_arguments_that_the_function_has(name: str) -> None:
    signature = in_database(f"proname = '{name}'")[name]

    for argument, sql_type in called()[name].argument_types.items():
        assert re.search(rf"\bp_{argument} {re.escape(sql_type)}(,| DEFAULT|$)", signature), (argument, signature)


@pytest.mark.django_db
@pytest.mark.parametrize("name", sorted(called()))
def test_arguments_that_the_gateway_leaves_out_have_a_default(name: str) -> None:
    signature = in_database(f"proname = '{name}'")[name]
    arguments = [argument for argument in signature.split(", ") if argument and not argument.startswith("OUT ")]
    passed = {f"p_{argument}" for argument in called()[name].argument_types}

    assert [argument for argument in arguments if argument.split()[0] not in passed and "DEFAULT" not in argument] == []


@pytest.mark.django_db
def test_every_function_pins_its_search_path_but_the_clock() -> None:
    """R12: _cb_now() must stay inlinable."""
    pinned = in_database(
        "EXISTS (SELECT FROM unnest(proconfig) AS setting WHERE setting = 'search_path=public, pg_temp')"
    )

    assert set(in_database()) - set(pinned) == {"_cb_now"}


@pytest.mark.django_db
def test_only_producing_functions_run_with_the_owners_rights_and_nobody_else_may_call_them() -> None:
    """R3."""
    assert set(in_database("prosecdef")) == SECURITY_DEFINER
    assert in_database("prosecdef AND has_function_privilege('public', oid, 'execute')") == {}


@pytest.mark.django_db
def test_hot_functions_have_no_loops_and_no_advisory_locks() -> None:
    """R4."""
    text = (PRESENT / "tasks.sql").read_text()

    assert not re.search(r"\bLOOP\b|\badvisory\b|\bpg_sleep\b", text, re.IGNORECASE)


@pytest.mark.parametrize("function", ["cb_claim_tasks", "cb_claim_suspect_tasks"])
def test_a_claim_touches_no_table_but_that_of_the_runs(function: str) -> None:
    """R4: no join with another table in the claim."""
    body = re.search(rf"FUNCTION {function}\(.*?\$\$(.*?)\$\$", (PRESENT / "tasks.sql").read_text(), re.DOTALL)[1]
    [statement] = [part for part in body.split(";") if "UPDATE cb_task_runs" in part]

    assert "FOR UPDATE SKIP LOCKED" in statement
    assert set(re.findall(r"\bcb_\w+", statement)) == {"cb_task_runs"}


def test_runs_are_locked_without_their_keys_or_without_waiting() -> None:
    """R6: claims take FOR UPDATE SKIP LOCKED and wait for nobody; all else leaves room for children to be inserted."""
    for path in PRESENT.glob("*.sql"):
        code = re.sub(r"--.*", "", path.read_text())
        # Breakers have no children, and whoever waits for one has nothing else to do.
        assert not re.search(r"\bFOR UPDATE\b(?! (OF \w+ )?SKIP LOCKED)", code) or path.name == "breakers.sql"


def test_the_statuses_that_are_final_are_one_list() -> None:
    """R8: terminal ones, live ones, and, for idempotency keys, live ones and those that had their effect."""
    live = set(TaskStatus.values) - TERMINAL_STATUSES
    known = [TERMINAL_STATUSES, live, live | {"completed", "skipped"}]
    for path in set(PRESENT.glob("*.sql")) - set(PRESENT.glob("flow_*.sql")):  # whose lists are of other statuses
        for text in re.findall(r"(?:IN \(|ARRAY\[)((?:'\w+'(?:, )?){3,})[)\]]", path.read_text()):
            listed = set(re.findall(r"\w+", text))
            if {"expired", "canceling"} & listed and listed <= set(TaskStatus.values):
                assert listed in known, f"{path.name}: {text}"


def test_there_are_three_channels() -> None:
    """R9: fixed ones, never built from a name."""
    text = "\n".join(path.read_text() for path in PRESENT.glob("*.sql"))
    channels = re.findall(r"pg_notify\(\s*(\S+?),", text)

    assert channels
    assert set(channels) <= {"'cb_work'", "'cb_live'", "'cb_job_states'"}


def test_time_comes_from_our_clock_alone() -> None:
    """R7."""
    for path in PRESENT.glob("*.sql"):
        code = re.sub(r"--.*", "", path.read_text())
        expected = 1 if path.name == "clock.sql" else 0
        found = re.findall(
            r"\b(now\(\)|clock_timestamp|statement_timestamp|current_timestamp|localtime)", code, re.IGNORECASE
        )
        assert len(found) == expected, path.name


def test_no_clock_of_a_host_is_asked() -> None:
    """R7: what Python would compare with a row; durations are measured by a clock that nobody sets."""
    for path in (PRESENT.parent).rglob("*.py"):
        assert not re.search(r"\b(timezone\.now|datetime\.now|time\.time)\(", path.read_text()), path.name


@pytest.mark.django_db
def test_the_choices_of_a_status_are_its_check_constraint() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'cb_task_runs_status_known'"
        )
        allowed = set(re.findall(r"'(\w+)'", cursor.fetchone()[0]))

    assert allowed == set(TaskStatus.values) == {value for value, _ in TaskRun._meta.get_field("status").choices}


@pytest.mark.django_db
def test_the_bodies_of_all_functions_are_sound() -> None:
    """Installing does not check bodies, so that files may refer to each other: check them here, strictly."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL check_function_bodies = on")
        cursor.execute("SET LOCAL plpgsql.extra_errors = 'all'")
        cursor.execute("SET LOCAL search_path = public, pg_temp")
        for path in sorted(PRESENT.glob("*.sql")):
            cursor.execute(path.read_text())


@pytest.mark.django_db
def test_no_migration_is_pending() -> None:
    """R2."""
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def listed(function: str) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {function}()")
        return {name.strip() for name in cursor.fetchone()[0].split(",")}


@pytest.mark.django_db
def test_grants_name_every_function_and_table_and_nothing_else() -> None:
    """R3: an application may have functions and tables of its own whose names begin with cb_."""
    granting = set(re.findall(r"CREATE OR REPLACE FUNCTION (\w+)", (PRESENT / "grants.sql").read_text()))

    assert listed("_cb_worker_functions") == in_files() - granting
    assert listed("_cb_producer_functions") == SECURITY_DEFINER
    assert listed("_cb_tables") == {model._meta.db_table for model in apps.get_app_config("catbird").get_models()}


PAYLOAD = {"input", "output", "error", "headers", "input_schema", "output_schema", "delivery_token", "trial_token"}
PAYLOAD |= {"progress", "details", "message", "tag", "payload", "value", "skip_message", "signal", "signal_schema"}
PAYLOAD |= {"argument_schemas", "dedupe_id", "started_by"}
PAYLOAD |= {"debounce_key", "concurrency_key", "idempotency_key", "cancel_reason", "canceled_by"}  # may name people
PAYLOAD |= {"early_reason"}  # a handler's own words


@pytest.mark.django_db
def test_viewers_see_every_column_that_holds_no_payload() -> None:
    """R3: a new column is hidden until somebody has thought about it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT _cb_viewer_grants('somebody')")
        statements = cursor.fetchone()[0].split(";")
    visible = {}
    for statement in statements:
        columns, table = re.search(r"SELECT \((.*?)\) ON (\w+)", statement, re.DOTALL).groups()
        visible[table] = {column.strip() for column in columns.split(",")}

    for model in apps.get_app_config("catbird").get_models():
        columns = {field.column for field in model._meta.fields}
        assert columns - visible[model._meta.db_table] <= PAYLOAD
        assert visible[model._meta.db_table] <= columns - PAYLOAD


def test_functions_with_the_owners_rights_call_no_built_in_that_could_be_overlaid() -> None:
    """An exact signature in our schema beats a polymorphic one in pg_catalog, unless that is spelled out."""
    text = "\n".join(path.read_text() for path in PRESENT.glob("*.sql"))
    bodies = re.findall(r"FUNCTION (\w+)\([^;]*?\$\$(.*?)\$\$", text, re.DOTALL)
    guarded = {name: body for name, body in bodies if name in SECURITY_DEFINER | {"_cb_notify_sleepers"}}

    assert set(guarded) == SECURITY_DEFINER | {"_cb_notify_sleepers"}
    for name, body in guarded.items():
        polymorphic = (
            r"(?<![.\w])(unnest|array_agg|array_position|array_to_string|cardinality|array_length|coalesce\b(?!\())\("
        )
        assert not re.search(polymorphic, body), name


@pytest.mark.django_db
def test_tables_are_static_managed_and_ours() -> None:
    """R2: one model per table, never one table per queue or flow."""
    for model in apps.get_app_config("catbird").get_models():
        assert model._meta.managed
        assert model._meta.db_table.startswith("cb_")
        assert model._meta.default_permissions == ("view",)


@pytest.mark.django_db
def test_no_extension_is_used() -> None:
    """R1: PostgreSQL 15 to 18, and nothing else."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT extname FROM pg_extension")
        assert cursor.fetchall() == [("plpgsql",)]
    assert 15 <= connection.pg_version // 10_000 <= 18
