"""The tutorial, followed to the letter: a new project, our wheel, one line in INSTALLED_APPS, and a task that runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.db import connection

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).resolve().parents[2]
TUTORIAL = CHECKOUT / "docs" / "tutorial" / "first-task.md"
TASKS = CHECKOUT / "examples" / "first_task" / "pages" / "tasks.py"
FLOWS = CHECKOUT / "examples" / "approvals" / "store" / "flows.py"


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command and give what it printed; what went wrong is in the failure."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "PYTHON", "PG"))}
    finished = subprocess.run(
        command, cwd=cwd, env={**inherited, **environment}, capture_output=True, text=True, timeout=90, check=False
    )
    assert finished.returncode == 0, f"{command} ended with {finished.returncode}:\n{finished.stdout}{finished.stderr}"
    return finished.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our wheel, built without network."""
    directory = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory, cwd=CHECKOUT)
    [built] = directory.glob("catbird_django-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh virtual environment with our wheel, and everything else borrowed from the tests'."""
    home = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", home, cwd=home)
    python = home / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=home)
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip()
    Path(packages, "borrowed.pth").write_text("\n".join(sorted(borrowed)))
    return python


@pytest.fixture
def database(transactional_db: None) -> Iterator[dict[str, str]]:
    """An empty database of the test server, as the variables that libpq reads."""
    # Named as the tests' own are, so that it is swept up if this run is killed.
    name = f"test_catbird_{os.getpid()}_new_project"
    parameters = connection.get_connection_params()
    variables = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}
    address = {variable: str(parameters[key]) for key, variable in variables.items() if parameters.get(key)}
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE DATABASE "{name}"')
        yield {**address, "PGDATABASE": name}
        cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


class Project:
    """A project made by `startproject`, and edited as the tutorial says."""

    def __init__(self, python: Path, directory: Path, environment: dict[str, str]) -> None:
        self._python = python
        self._directory = directory
        self._environment = environment
        run(python, "-m", "django", "startproject", "mysite", cwd=directory.parent)

    def manage(self, *arguments: str) -> str:
        return run(self._python, "manage.py", *arguments, cwd=self._directory, **self._environment)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Keep a worker running meanwhile, and stop it as an operator does."""
        command = [self._python, "manage.py", "catbird_worker"]
        environment = {**os.environ, **self._environment, "DJANGO_SETTINGS_MODULE": "mysite.settings"}
        worker = subprocess.Popen(command, cwd=self._directory, env=environment, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            worker.terminate()
            assert worker.wait(timeout=60) == 0

    def edit(self, module: str, old: str, new: str) -> int:
        """Replace what is there once; say in which line it is."""
        path = self._directory / module
        before, _, after = path.read_text().partition(old)
        path.write_text(before + new + after)
        return before.count("\n") + 1

    def complaints(self) -> str:
        """What `manage.py check` says of a project that it refuses."""
        environment = {**os.environ, **self._environment, "DJANGO_SETTINGS_MODULE": "mysite.settings"}
        command = [self._python, "manage.py", "check"]
        checked = subprocess.run(
            command, cwd=self._directory, env=environment, capture_output=True, text=True, timeout=90
        )
        assert checked.returncode == 1, checked.stdout
        return checked.stderr

    def install(self, *apps: str) -> None:
        settings = self._directory / "mysite" / "settings.py"
        lines = "".join(f'    "{app}",\n' for app in apps)
        settings.write_text(settings.read_text().replace("INSTALLED_APPS = [\n", f"INSTALLED_APPS = [\n{lines}"))

    def use_postgresql(self) -> None:
        database = {"ENGINE": "django.db.backends.postgresql", "NAME": self._environment["PGDATABASE"]}
        with (self._directory / "mysite" / "settings.py").open("a") as settings:
            settings.write(f"\nDATABASES = {{'default': {database!r}}}\n")

    def add(self, app: str, module: Path) -> None:
        shutil.copy(module, self._directory / app / module.name)


@pytest.fixture
def project(python: Path, tmp_path: Path, database: dict[str, str]) -> Project:
    return Project(python, tmp_path / "mysite", database)


@pytest.mark.timeout(300)
def test_a_new_project_with_our_wheel_runs_a_task(project: Project):
    project.use_postgresql()
    project.manage("startapp", "pages")
    project.add("pages", TASKS)
    project.install("catbird_django", "pages")

    project.manage("migrate")
    project.manage("shell", "-c", queue_a_run_of("pages"))
    log = project.manage("catbird_worker", "--until-idle")

    assert "runs summarize" in log
    assert "{'title': 'Ada', 'words': 3}" in project.manage("shell", "-c", OUTPUT_OF_THE_FIRST_RUN)


@pytest.mark.timeout(300)
def test_a_new_project_with_our_wheel_runs_a_flow_with_an_approval(project: Project):
    """SPEC 4: `shop/flows.py` runs as it stands."""
    project.use_postgresql()
    project.manage("startapp", "shop")
    project.add("shop", FLOWS)
    project.install("catbird_django", "shop")

    project.manage("migrate")
    project.manage("catbird_run", "order", "--input", '{"id": 1, "total": 5000}')
    project.manage("catbird_worker", "--until-idle")
    assert "approve waits for a signal" in project.manage("catbird_explain", "1")
    project.manage("catbird_signal", "1", "approve", "--payload", '{"by": "kim", "ok": true}')
    project.manage("catbird_worker", "--until-idle")

    output = "from catbird_django import FlowHandle; print(FlowHandle(1).wait(timeout=10))"
    assert "shipped 1" in project.manage("shell", "-c", output)


@pytest.mark.timeout(300)
def test_the_order_flow_is_used_as_the_specification_says(project: Project):
    """SPEC 4: word for word, from a shell of the new project, while a worker is running."""
    project.use_postgresql()
    project.manage("startapp", "shop")
    project.add("shop", FLOWS)
    project.install("catbird_django", "shop")
    project.manage("migrate")

    with project.working():
        assert project.manage("shell", "-c", USE_OF_THE_ORDER_FLOW).endswith("as it should be\n")


@pytest.mark.timeout(300)
def test_a_type_that_does_not_fit_between_two_steps_is_reported_with_file_and_line(project: Project):
    """F2: by `manage.py check`."""
    project.manage("startapp", "shop")
    project.add("shop", FLOWS)
    project.install("catbird_django", "shop")
    project.use_postgresql()
    step = '@orders.step(condition="validate.total gt 1000", signal=Approval)\ndef approve(validate: '
    line = project.edit("shop/flows.py", f"{step}Check", f"{step}Order")

    complaints = project.complaints()

    assert "(catbird.E011)" in complaints
    assert f"shop/flows.py:{line}: step 'approve' takes validate: Order, but 'validate' returns Check" in complaints


@pytest.mark.timeout(300)
def test_what_the_new_project_imports_is_the_wheel_and_passes_the_checks(project: Project, python: Path):
    project.use_postgresql()
    project.install("catbird_django")

    project.manage("migrate")

    assert "no issues" in project.manage("check", "--database", "default")
    where = project.manage("shell", "-c", "import catbird_django; print(catbird_django.__file__)")
    assert str(python.parents[1]) in where


def test_the_tutorial_says_what_these_tests_do():
    text = TUTORIAL.read_text()

    for command in ("startproject mysite", "startapp pages", "migrate", "catbird_worker --until-idle"):
        assert command in text
    for line in (*queue_a_run_of("pages").split("; "), *OUTPUT_OF_THE_FIRST_RUN.split("; ")):
        assert line in text


def test_the_wheel_carries_sql_migrations_and_the_mark_of_types(wheel: Path):
    inside = set(zipfile.ZipFile(wheel).namelist())

    package = CHECKOUT / "catbird_django"
    shipped = [path for kind in ("*.sql", "*.html", "*.py", "py.typed", "static/**/*") for path in package.rglob(kind)]
    wanted = {str(path.relative_to(CHECKOUT)) for path in shipped if path.is_file() and "__pycache__" not in path.parts}
    assert wanted <= inside
    assert {"catbird_django/py.typed", "catbird_django/sql/tasks.sql"} <= wanted
    assert any(name.startswith("catbird_django/migrations/sql/") for name in wanted)


def test_the_wheel_carries_nothing_but_the_package(wheel: Path):
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}

    assert {top for top in tops if not top.endswith(".dist-info")} == {"catbird_django"}


USE_OF_THE_ORDER_FLOW = """
from shop.flows import Approval, Order, orders

run = orders.run(Order(id=1, total=5000.0))
run.signal("approve", Approval(by="kim", ok=True))
assert run.wait(timeout=10) == "shipped 1"
assert orders.run(Order(id=2, total=5.0)).wait(timeout=10) == "shipped 2 without asking"
print("as it should be")
"""
OUTPUT_OF_THE_FIRST_RUN = "from catbird_django import TaskHandle; print(TaskHandle(1).wait(timeout=10))"


def queue_a_run_of(app: str) -> str:
    return (
        f'from {app}.tasks import Page, summarize; print(summarize.run(Page(title="Ada", text="the first programmer")))'
    )
