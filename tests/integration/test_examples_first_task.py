"""`examples/first_task`: its tasks run with a real worker, also with the tables of catbird in a second database."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.db import connection, transaction

from catbird_django import PayloadError
from catbird_django.models import TaskRun
from catbird_django.statuses import TaskStatus
from tests.examples import CHECKOUT, EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = EXAMPLES / "first_task"


@pytest.mark.django_db(transaction=True)
def test_the_first_task_counts_the_words_of_a_page(example: Any, work_until_idle: Any):
    tasks = example("pages.tasks")
    handle = tasks.summarize.run(tasks.Page(title="Ada", text="the first programmer"))

    work_until_idle()

    assert handle.wait(timeout=10) == tasks.Summary(title="Ada", words=3)


@pytest.mark.django_db
def test_the_tutorial_quotes_the_refusal_of_a_bad_input(example: Any):
    tasks = example("pages.tasks")

    with pytest.raises(PayloadError) as refusal:
        tasks.summarize.run({"title": "Ada", "text": 1})

    assert str(refusal.value) in (CHECKOUT / "docs" / "tutorial" / "first-task.md").read_text()
    assert not TaskRun.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_welcome_is_sent_once_the_sign_up_is_committed(example: Any, work_until_idle: Any):
    handle = example("accounts.signup").sign_up("ada", "ada@example.com")

    work_until_idle()

    assert handle.wait(timeout=10) == "ada@example.com"
    assert [message.to for message in mail.outbox] == [["ada@example.com"]]


@pytest.mark.django_db(transaction=True)
def test_a_sign_up_that_is_rolled_back_leaves_neither_user_nor_run(example: Any):
    sign_up = example("accounts.signup").sign_up

    with transaction.atomic():
        sign_up("ada", "ada@example.com")
        transaction.set_rollback(True)

    assert not User.objects.exists()
    assert not TaskRun.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_task_that_raises_is_failed_and_says_why(example: Any, work_until_idle: Any):
    handle = example("accounts.tasks").welcome.run(-1)

    work_until_idle()

    assert handle.status() == TaskStatus.FAILED
    assert TaskRun.objects.get(pk=handle.id).error["type"] == "User.DoesNotExist"
    assert example("pages.figures").failed_today() == {"welcome": 1}


@pytest.fixture
def schema_of_their_own(transactional_db: None) -> Iterator[dict[str, str]]:
    """A schema beside `public` in the test database, and the variables that lead the example there."""
    parameters = connection.get_connection_params()
    variables = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}
    address = {variable: str(parameters[key]) for key, variable in variables.items() if parameters.get(key)}
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA background")
        yield {**address, "PGDATABASE": str(parameters["dbname"]), "WORK_DATABASE": str(parameters["dbname"])}
        cursor.execute("DROP SCHEMA background CASCADE")


def test_the_tables_may_live_in_a_second_database_and_a_schema_of_their_own(schema_of_their_own: dict[str, str]):
    def manage(*arguments: str) -> str:
        return run_manage(*arguments, **schema_of_their_own)

    manage("migrate", "--database", "work")
    manage("check", "--database", "work")
    manage("shell", "-c", 'from pages.tasks import Page, summarize; summarize.run(Page(title="Ada", text="one two"))')
    manage("shell", "-c", "from shop.tasks import draw_receipt; draw_receipt.run(7)")
    manage("catbird_worker", "--until-idle")

    assert not TaskRun.objects.exists(), "the run is in the other schema"
    with connection.cursor() as cursor:
        cursor.execute("SELECT status, coalesce(output ->> 'words', output #>> '{}') FROM background.cb_task_runs")
        [summarized, drawn] = sorted(cursor.fetchall())
    assert summarized == ("completed", "2")
    assert drawn[0] == "completed"
    assert "receipt of order 7" in drawn[1]


def run_manage(*arguments: str, **environment: str) -> str:
    variables = {"DJANGO_SETTINGS_MODULE": "mysite.settings_second_database", "PYTHONPATH": str(CHECKOUT)}
    finished = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=EXAMPLE,
        env={**os.environ, **variables, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, f"{arguments}:\n{finished.stdout}{finished.stderr}"
    return finished.stdout


@pytest.mark.django_db(transaction=True)
def test_a_charge_is_put_off_tried_again_or_given_up(example: Any, work_until_idle: Any):
    tasks, bank = example("shop.tasks"), example("shop.bank")
    bank.MOODS.update(
        {1: [bank.BankClosed()], 2: [bank.BankRefused()], 3: [bank.CardUnknown()], 4: [ValueError("odd")]}
    )
    closed, refused, unknown, odd, fine = (tasks.charge.run(order) for order in (1, 2, 3, 4, 5))

    work_until_idle()

    runs = {run.pk: run for run in TaskRun.objects.all()}
    assert (runs[closed.id].status, runs[closed.id].failure_count) == ("queued", 0)
    assert (runs[refused.id].status, runs[refused.id].failure_count) == ("queued", 1)
    assert (runs[unknown.id].status, runs[unknown.id].error["type"]) == ("failed", "CardUnknown")
    assert (runs[odd.id].status, runs[odd.id].failure_count) == ("queued", 1)
    assert fine.wait(timeout=10) == "order 5 charged at attempt 1"


@pytest.mark.django_db(transaction=True)
def test_parcels_wait_while_the_carrier_is_down(example: Any, work_until_idle: Any, monkeypatch: pytest.MonkeyPatch):
    tasks, carrier = example("shop.tasks"), example("shop.carrier")
    monkeypatch.setattr(carrier, "is_down", True)
    tasks.book_parcel.run_many(range(200))

    work_until_idle()

    # How many fail depends on the machine, because what had begun when the breaker opened goes on. None fails twice.
    assert set(TaskRun.objects.values_list("failure_count", flat=True)) == {0, 1}
    assert TaskRun.objects.filter(failure_count=1).count() >= 5
    assert TaskRun.objects.queued().count() == 200


@pytest.mark.django_db(transaction=True)
def test_labels_are_printed(example: Any, work_until_idle: Any):
    handles = example("shop.tasks").print_label.run_many(range(30))

    work_until_idle()

    assert handles[7].wait(timeout=10) == "label of order 7 printed"
    assert TaskRun.objects.filter(status="completed").count() == 30
