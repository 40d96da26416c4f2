"""`cb_register_tasks`."""

import threading

import pytest
from django.db import connection, connections

from catbird_django.engine.tasks import TaskRow, register_tasks
from catbird_django.models import Task
from tests.support import USING, register


def row(name: str, fingerprint: str) -> TaskRow:
    return TaskRow(
        name=name,
        queue="default",
        description="",
        handler="",
        max_retries=0,
        max_lost=5,
        input_schema=None,
        output_schema=None,
        fingerprint=fingerprint,
    )


def row_version(name: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT xmin::text || ':' || ctid::text FROM cb_tasks WHERE name = %s", [name])
        return cursor.fetchone()[0]


def test_ids_come_back_in_the_order_given() -> None:
    ids = register("zebra", "ape", "mole")

    assert [Task.objects.get(id=task_id).name for task_id in ids] == ["zebra", "ape", "mole"]


def test_registering_the_same_shape_again_writes_nothing() -> None:
    """F21: it disturbs no worker. R10: asking for what is already true succeeds."""
    [first] = register_tasks([row("mail", "a")], using=USING)
    before = row_version("mail")

    [second] = register_tasks([row("mail", "a")], using=USING)

    assert second == first
    assert row_version("mail") == before


def test_a_changed_shape_updates_the_row_and_keeps_its_id() -> None:
    [first] = register_tasks([row("mail", "a")], using=USING)

    [second] = register_tasks([row("mail", "b")], using=USING)

    assert second == first
    assert Task.objects.get(id=first).fingerprint == "b"


@pytest.mark.django_db(transaction=True)
def test_processes_that_register_together_get_the_same_ids() -> None:
    """The loser of the race waits for the winner's commit and must then see its row."""
    answers: list[list[int]] = []
    together = threading.Barrier(4)

    def register_together() -> None:
        together.wait()
        for number in range(50):
            answers.append(register(f"b{number}", f"a{number}"))
        connections.close_all()

    threads = [threading.Thread(target=register_together) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(answers) == 200
    assert len({tuple(ids) for ids in answers}) == 50
