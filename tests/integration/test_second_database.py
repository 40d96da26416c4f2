"""R12: a second alias, a schema that is not public, and a search_path that means ill."""

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from catbird_django import SignalRefused, signal_flow, task
from catbird_django.models import FlowRun, TaskRun
from catbird_django.statuses import FlowStatus
from tests.flows import Approval, Order, declare_orders
from tests.integration.conftest import ScratchDatabase
from tests.support import work_off


@pytest.fixture
def elsewhere(scratch_database: ScratchDatabase) -> str:
    """A database whose catbird lives in a schema with an awkward name, beside a public one."""
    alias = scratch_database("elsewhere", search_path='"Cat Bird",public')
    with connections[alias].cursor() as cursor:
        cursor.execute('CREATE SCHEMA "Cat Bird"')
    call_command("migrate", database=alias, verbosity=0)
    return alias


def test_a_task_runs_in_another_schema_of_another_database(elsewhere: str) -> None:
    @task
    def double(input: int) -> int:
        return input * 2

    with override_settings(CATBIRD={"DATABASE": elsewhere}):
        handle = double.run(21)
        work_off("double")

        assert handle.wait(timeout=5) == 42
        assert TaskRun.objects.using(elsewhere).get(id=handle.id).output == 42


def test_a_call_may_name_its_database(elsewhere: str) -> None:
    @task
    def double(input: int) -> int:
        return input * 2

    handle = double.run(1, using=elsewhere)

    assert TaskRun.objects.using(elsewhere).get(id=handle.id).input == 1


def test_a_flow_is_run_and_signaled_in_the_database_that_is_named(elsewhere: str) -> None:
    """Section 16: `using`; and what follows from a signal happens there, too."""
    orders = declare_orders()

    handle = orders.run(Order(1, 5000.0), using=elsewhere)
    handle.signal("approve", Approval(by="kim", ok=True))
    with pytest.raises(SignalRefused, match="given before"):
        signal_flow(handle.id, "approve", Approval(by="kim", ok=True), using=elsewhere)

    assert str(handle.explain()[0]).startswith("validate is queued")
    assert handle.cancel() is FlowStatus.CANCELED
    assert FlowRun.objects.using(elsewhere).get(pk=handle.retry().id).origin_id == handle.id


def test_a_flow_is_worked_off_in_another_schema_of_another_database(elsewhere: str) -> None:
    with override_settings(CATBIRD={"DATABASE": elsewhere}):
        handle = declare_orders().run(Order(1, 5.0))
        work_off()

        assert handle.wait(timeout=5) == "shipped 1 without asking"


def test_functions_are_pinned_to_the_schema_of_the_tables(elsewhere: str) -> None:
    with connections[elsewhere].cursor() as cursor:
        cursor.execute("SELECT DISTINCT unnest(proconfig) FROM pg_proc WHERE proname = 'cb_run_tasks'")
        assert cursor.fetchall() == [('search_path="Cat Bird", pg_temp',)]


def test_a_hostile_search_path_changes_nothing(elsewhere: str) -> None:
    """A function, a table and an operator of the same name in front of ours are not used."""

    @task
    def double(input: int) -> int:
        return input * 2

    double.run(1, using=elsewhere)
    with connections[elsewhere].cursor() as cursor:
        cursor.execute("CREATE SCHEMA hostile")
        for clock in ("_cb_now", "statement_timestamp"):
            epoch = "LANGUAGE sql AS $$ SELECT 'epoch'::timestamptz $$"
            cursor.execute(f"CREATE FUNCTION hostile.{clock}() RETURNS timestamptz {epoch}")
        cursor.execute("CREATE TABLE hostile.cb_tasks (id bigint, name text, queue text)")
        cursor.execute("CREATE TEMPORARY TABLE cb_task_runs (id bigint)")
        cursor.execute("""SET search_path = pg_temp, hostile, "Cat Bird", public""")
        cursor.execute("""SELECT * FROM "Cat Bird".cb_run_tasks('double', ARRAY['5']::jsonb[])""")
        run_id, verdict, *_ = cursor.fetchone()
        cursor.execute(
            """SELECT queued_at > now() - interval '1 hour' FROM "Cat Bird".cb_task_runs WHERE id = %s""", [run_id]
        )
        is_recent = cursor.fetchone()

    assert (verdict, is_recent) == ("queued", (True,))
