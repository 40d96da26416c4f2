"""`sql/grants.sql` and `manage.py catbird_grants`: what each role may do, and what not (R3)."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from catbird_django import SignalRefused, Task
from catbird_django.client.registration import register_flows
from catbird_django.definitions.registry import registry
from catbird_django.models import SignalDelivery, TaskRun
from tests.flows import Approval, Order, declare_orders
from tests.support import register


@pytest.fixture
def roles() -> None:
    """Made in the test's transaction, and gone with it."""
    register("mail")
    with connection.cursor() as cursor:
        for kind in ("producer", "worker", "viewer"):
            cursor.execute(f"CREATE ROLE cb_test_{kind}")
    call_command("catbird_grants", producer=["cb_test_producer"], worker=["cb_test_worker"], viewer=["cb_test_viewer"])


@contextmanager
def acting_as(kind: str) -> Iterator[None]:
    """Act as a role until the end of the savepoint, whose rollback takes SET LOCAL back as well."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE cb_test_{kind}")
        yield
        cursor.execute("RESET ROLE")


def is_allowed(kind: str, statement: str) -> bool:
    try:
        with acting_as(kind), connection.cursor() as cursor:
            cursor.execute(statement)
    except DatabaseError as error:
        if error.__cause__.sqlstate == INSUFFICIENT_PRIVILEGE:
            return False
        raise
    return True


INSUFFICIENT_PRIVILEGE = "42501"
RUN = "SELECT * FROM cb_run_tasks('mail', ARRAY['1']::jsonb[])"
RUN_ONE = "SELECT * FROM cb_run_task('mail', '1')"
WAKE = "SELECT cb_wake_workers(ARRAY['default'])"
CLAIM = """
    SELECT * FROM cb_claim_tasks(1, '1 s', ARRAY['default'], ARRAY[1]::bigint[], ARRAY[0], ARRAY[0]::bigint[], ARRAY[1])
"""
COMPLETE = "SELECT * FROM cb_complete_tasks(ARRAY[1]::bigint[], ARRAY[gen_random_uuid()], ARRAY['1']::jsonb[])"
FIND_SIGNAL = "SELECT * FROM cb_find_signal(1, 'approve')"
SIGNAL = "SELECT * FROM cb_signal_flow(1, 'approve', '1')"
RETRY_FLOW = "SELECT * FROM cb_retry_flows(ARRAY[1]::bigint[])"
GRANT = "SELECT cb_grant('cb_test_producer', 'worker')"


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        (RUN, {"producer", "worker"}),
        (RUN_ONE, {"producer", "worker"}),
        (WAKE, {"producer", "worker"}),
        (CLAIM, {"worker"}),
        (COMPLETE, {"worker"}),
        (FIND_SIGNAL, {"producer", "worker"}),
        (SIGNAL, {"producer", "worker"}),
        (RETRY_FLOW, {"worker"}),
        (GRANT, set()),
        ("SELECT * FROM cb_task_runs", {"worker"}),
        ("SELECT id, status, queue, queued_at FROM cb_task_runs", {"worker", "viewer"}),
        ("SELECT input FROM cb_task_runs", {"worker"}),
        ("SELECT output FROM cb_task_runs", {"worker"}),
        ("SELECT error FROM cb_task_runs", {"worker"}),
        ("INSERT INTO cb_tasks (name, fingerprint, registered_at) VALUES ('x', '', now())", {"worker"}),
        ("UPDATE cb_task_runs SET priority = 1", {"worker"}),
        ("DELETE FROM cb_workers", {"worker"}),
        ("DROP TABLE cb_task_runs", set()),
        ("CREATE TABLE public.mine (id int)", set()),
        ("SELECT * FROM auth_user", set()),
    ],
)
@pytest.mark.usefixtures("roles")
def test_each_role_may_do_its_part_and_nothing_else(statement: str, allowed: set[str]) -> None:
    assert {kind for kind in ("producer", "worker", "viewer") if is_allowed(kind, statement)} == allowed


@pytest.mark.usefixtures("roles")
def test_what_was_granted_can_be_taken_back() -> None:
    call_command("catbird_grants", revoke=["cb_test_producer", "cb_test_worker", "cb_test_viewer"])

    assert not is_allowed("producer", RUN)
    assert not is_allowed("worker", "SELECT id FROM cb_task_runs")
    assert not is_allowed("viewer", "SELECT id FROM cb_task_runs")


def test_a_role_that_does_not_exist_is_named_and_nothing_is_granted() -> None:
    with pytest.raises(CommandError, match="nobody_at_all"):
        call_command("catbird_grants", viewer=["nobody_at_all"])


def test_a_command_without_roles_says_what_to_do() -> None:
    with pytest.raises(CommandError, match="--worker"):
        call_command("catbird_grants")


def test_a_hostile_name_is_a_name_and_nothing_more() -> None:
    with pytest.raises(CommandError, match="does not exist"):
        call_command("catbird_grants", viewer=['x"; DROP TABLE cb_tasks; --'])

    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM cb_tasks")


@pytest.mark.usefixtures("roles")
def test_a_producer_can_run_a_task_from_python_that_others_have_registered() -> None:
    with registry.isolated(), acting_as("producer"):
        mail: Task[object, object] = Task("mail")
        handle = mail.run({"to": "ada"})

    assert TaskRun.objects.get(id=handle.id).input == {"to": "ada"}


@pytest.mark.usefixtures("roles")
def test_a_producer_can_run_and_signal_a_flow_from_python_that_others_have_registered() -> None:
    """R3, F12: its payload is checked too, although the producer can read no table."""
    with registry.isolated():
        orders = declare_orders("orders_of_a_producer")
        register_flows([orders.definition], using="default")
        with acting_as("producer"):
            handle = orders.run(Order(1, 5000.0))
            with pytest.raises(SignalRefused, match=r"signal\.ok"):
                handle.signal("approve", {"by": "kim"})
            handle.signal("approve", Approval(by="kim", ok=True))

    verdicts = SignalDelivery.objects.order_by("id").values_list("flow_run_id", "verdict")
    assert list(verdicts) == [(handle.id, "malformed"), (handle.id, "accepted")]
