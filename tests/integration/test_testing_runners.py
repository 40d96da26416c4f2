"""The test kit under the runners that applications use: Django's, and pytest with its plugin (X4)."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from django.db import connection

from tests.examples import CHECKOUT, EXAMPLES

PLUGIN = "catbird_django.testing.pytest_plugin"
WITHOUT_TRANSACTION = """
import pytest
from shop.tasks import charge
from catbird_django.testing import simulate, turn_clock as turn_for_good

pytestmark = pytest.mark.django_db(transaction=True)


def test_turned_by_the_fixture(work_until_idle, turn_clock):
    charge.run(1, delay=3600)
    turn_clock(hours=2)
    assert work_until_idle().names == ["charge"]


def test_not_turned_any_more(work_until_idle):
    charge.run(1, delay=3600)
    assert work_until_idle().names == []


def test_turned_by_the_function():
    turn_for_good(hours=2)


def test_not_turned_any_more_either(work_until_idle):
    charge.run(1, delay=3600)
    assert work_until_idle().names == []
"""


@pytest.fixture
def environment(db: None) -> dict[str, str]:
    """Where the test server is, and the name of a database that the runner puts test_ before."""
    name = f"catbird_{os.getpid()}_runner"
    parameters = connection.get_connection_params()
    variables = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}
    address = {variable: str(parameters[key]) for key, variable in variables.items() if parameters.get(key)}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "PYTEST_"))}
    return {**inherited, **address, "PGDATABASE": name, "PYTHONPATH": str(CHECKOUT)}


def run(*command: str, cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=90, check=False
    )


def run_pytest(*arguments: str, environment: dict[str, str], plugin: str = PLUGIN) -> subprocess.CompletedProcess[str]:
    options = ["-p", plugin, "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".", "--ds", "mysite.settings"]
    return run("-m", "pytest", *options, *arguments, cwd=EXAMPLES / "first_task", environment=environment)


def test_djangos_runner_runs_the_tests_of_the_example(environment: dict[str, str]) -> None:
    told = run("manage.py", "test", "--noinput", cwd=EXAMPLES / "approvals", environment=environment)

    assert told.returncode == 0, told.stderr
    assert "Ran 4 tests" in told.stderr


def test_pytest_runs_the_tests_of_the_example_with_the_fixtures_of_the_plugin(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """X4a: and what was turned without a transaction is undone."""
    more = tmp_path / "test_without_transaction.py"
    more.write_text(WITHOUT_TRANSACTION)

    told = run_pytest("shop/test_charge.py", str(more), environment=environment)

    assert told.returncode == 0, told.stdout + told.stderr
    assert "6 passed" in told.stdout


def test_the_plugin_comes_with_the_package() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]

    assert project["entry-points"]["pytest11"] == {"catbird": PLUGIN}
    assert not any(dependency.startswith("pytest") for dependency in project["dependencies"])


@pytest.mark.parametrize(
    ("module", "forbidden"), [("catbird_django.testing", "pytest"), (PLUGIN, "catbird_django.models")]
)
def test_importing_it_needs_neither_pytest_nor_settings(module: str, forbidden: str) -> None:
    """X6: pytest loads its plugins before Django is set up."""
    command = f"import sys; sys.modules[{forbidden!r}] = None; import {module}; print('imported')"

    told = run("-c", command, cwd=CHECKOUT, environment={"PATH": ""})

    assert (told.stdout.strip(), told.stderr) == ("imported", "")
