"""`examples/billing`: maps, a reduce, an inline and an atomic step, run to their end (F6, F14, F15, F16, F22)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from tests.examples import CHECKOUT, EXAMPLES

PROJECT = EXAMPLES / "billing"
PICTURE = CHECKOUT / "docs" / "images" / "invoice-flow.svg"
FILE = {"file": "may.csv", "text": "A1,10.50\nA2,much\nA3,4.50\nA4,-1"}
COUNT = (
    "from bills.models import Booking; print(Booking.objects.count(), sum(one.cents for one in Booking.objects.all()))"
)

Manage = Callable[..., str]


@pytest.fixture
def manage(transactional_db: None) -> Iterator[Manage]:
    """The project's `manage.py`, with an empty database of the test server."""
    # Named as the tests' own are, so that it is swept up if this run is killed.
    name = f"test_catbird_{os.getpid()}_billing"
    parameters = connection.get_connection_params()
    variables = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}
    address = {variable: str(parameters[key]) for key, variable in variables.items() if parameters.get(key)}
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("DJANGO_", "PYTEST_"))}
    environment = {**inherited, **address, "PGDATABASE": name, "PYTHONPATH": str(CHECKOUT)}

    def run(*arguments: str, errors: bool = False) -> str:
        command = [sys.executable, "manage.py", *arguments]
        told = subprocess.run(
            command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=90, check=False
        )
        assert told.returncode == 0, told.stdout + told.stderr
        return told.stderr if errors else told.stdout

    with connection.cursor() as cursor:
        cursor.execute(f'CREATE DATABASE "{name}"')
        yield run
        cursor.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def test_its_own_tests_pass(manage: Manage) -> None:
    assert "Ran 4 tests" in manage("test", "--noinput", errors=True)


def test_a_real_worker_runs_it_to_its_end(manage: Manage) -> None:
    manage("migrate", "--verbosity", "0")
    started = json.loads(manage("catbird_run", "invoice_import", "--input", json.dumps(FILE), "--format", "json"))
    manage("catbird_worker", "--until-idle")

    told = manage(
        "shell", "-c", f"from catbird_django import FlowHandle; print(FlowHandle({started['run_id']}).wait())"
    )

    assert eval(told.splitlines()[-1]) == {
        "summary": "2 invoices, 15.00 in all",
        "complaints": ["row 2: could not convert string to float: 'much'", "row 4: -1 is no amount"],
    }
    assert manage("shell", "-c", COUNT).splitlines()[-1] == "2 1500"


def test_the_picture_on_the_page_is_the_one_of_the_example(manage: Manage) -> None:
    """X3: `manage.py catbird_graph invoice_import --output docs/images/invoice-flow.svg` draws it again."""
    assert manage("catbird_graph", "invoice_import") == PICTURE.read_text(encoding="utf-8")
