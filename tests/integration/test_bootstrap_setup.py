"""`bootstrap.py` in a small checkout of its own: the good way once, and each fault with its one line."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0


class Checkout:
    """A checkout with the real bootstrap.py, one tiny package to install, and stubs of what is run afterwards."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        (root / "requirements").mkdir(parents=True)
        (root / "project").mkdir()
        shutil.copy(CHECKOUT / "bootstrap.py", root)
        self.write("manage.py", "import sys, tiny; print('managed with', *sys.argv[1:])")
        self.write("project/__init__.py", "")
        self.write("project/preflight.py", "import sys; sys.exit('that database is of no use')")
        self.require("tiny", "1.0")

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(f"{text}\n")

    def require(self, name: str, version: str) -> None:
        self.write("requirements.txt", f"{name}=={version}")
        make_wheel(self.root / "wheels", name, version)

    def start(self, *arguments: str, python: str = sys.executable, **environment: str) -> subprocess.Popen[str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "DATABASE_"))}
        offline = {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": (self.root / "wheels").as_uri(),
            "PIP_CONFIG_FILE": os.devnull,
        }
        return subprocess.Popen(
            [python, self.root / "bootstrap.py", *arguments],
            cwd="/",
            env={**inherited, **offline, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **options)
        output, errors = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def make_wheel(directory: Path, name: str, version: str) -> None:
    """Write the smallest wheel there is: a module and its name."""
    directory.mkdir(exist_ok=True)
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout, with a space in its path, in which everything went well."""
    checkout = Checkout(tmp_path_factory.mktemp("with space") / "a checkout")
    result = checkout.run("demo", "--port", "9000")
    assert result.returncode == 0, result.stderr
    assert "Installing 1 packages ..." in result.stdout
    assert result.stdout.endswith("managed with catbird_demo --port 9000\n")
    return checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A checkout in which nothing was done yet."""
    return Checkout(tmp_path / "checkout")


@pytest.fixture
def silent_index() -> Iterator[socket.socket]:
    """A package index that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as index:
        index.settimeout(PATIENCE)
        yield index


def asking(index: socket.socket) -> dict[str, str]:
    return {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": f"http://127.0.0.1:{index.getsockname()[1]}/simple"}


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_the_second_time_there_is_nothing_to_do(installed):
    result = installed.run("demo")

    assert result.stdout == "managed with catbird_demo\n"


def test_it_helps():
    result = subprocess.run([sys.executable, CHECKOUT / "bootstrap.py", "--help"], capture_output=True, text=True)

    assert result.returncode == 0
    assert all(f"\n  {command}" in result.stdout for command in ("demo", "test", "check", "docs"))


def test_an_unknown_command_is_answered_with_the_known_ones(checkout):
    result = checkout.run("dmeo")

    assert result.returncode == 2
    assert "there is no command 'dmeo': choose one of demo, test, chaos, bench, check, docs" in result.stdout


def test_a_python_as_old_as_3_6_can_read_the_file():
    ast.parse((CHECKOUT / "bootstrap.py").read_text(), feature_version=(3, 6))


def test_an_old_python_is_told_so(checkout):
    result = checkout.run("demo", python=old_python())

    assert result.returncode == 1
    assert result.stderr.startswith("bootstrap: Python 3.11 or newer is needed, and this is 3.")
    assert result.stderr.count("\n") == 1
    assert not checkout.venv.exists()


def old_python() -> str:
    """An interpreter that runs, not only a name on PATH: version managers leave placeholders there."""
    named = [shutil.which(f"python3.{minor}") for minor in range(6, 11)]
    managed = sorted(Path.home().glob(".pyenv/versions/3.[6-9].*/bin/python3"))
    for python in [*filter(None, named), *map(str, managed)]:
        if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return python
    pytest.skip("no Python older than 3.11 here")


def test_a_python_without_ensurepip_is_told_what_to_install(checkout, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['ensurepip'] = None\n")

    result = checkout.run("demo", PYTHONPATH=str(tmp_path))

    assert result.returncode == 1
    assert "ensurepip is missing: install it" in result.stderr
    assert "-venv`" in last_line(result.stderr)
    assert not checkout.venv.exists()


def test_without_a_network_it_says_so_and_goes_on_where_it_was_later(installed):
    installed.require("tiny", "1.1")
    nowhere = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": "http://127.0.0.1:1/simple"}

    offline = installed.run("demo", **nowhere)
    online = installed.run("demo")

    assert offline.returncode == 1
    assert "pip could not install requirements.txt" in last_line(offline.stderr)
    assert "check the network" in last_line(offline.stderr)
    assert "ERROR:" in offline.stdout
    assert online.returncode == 0
    assert "Making .venv" not in online.stdout


def test_a_terminated_installation_ends_its_pip(installed, silent_index):
    installed.require("tiny", "1.2")
    process = installed.start("demo", **asking(silent_index))
    silent_index.accept()
    (pip,) = psutil.Process(process.pid).children()

    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)

    assert process.returncode == 130
    assert not pip.is_running()


def test_after_a_killed_installation_the_environment_is_made_anew(installed, silent_index):
    installed.require("tiny", "1.3")
    process = installed.start("demo", **asking(silent_index))
    silent_index.accept()
    (pip,) = psutil.Process(process.pid).children()
    process.kill()

    waiting = installed.start("demo")
    assert waiting.stdout.readline() == "Waiting for another bootstrap.py that is working on .venv ...\n"
    pip.kill()
    output, errors = waiting.communicate(timeout=PATIENCE)

    assert waiting.returncode == 0, errors
    assert "only half made" in output
    process.communicate()


def test_two_at_once_mend_an_environment_without_a_python_and_make_one(checkout):
    (checkout.venv / "bin").mkdir(parents=True)
    (checkout.venv / "bin" / "python").symlink_to("/nowhere/python3")

    both = [checkout.start("demo"), checkout.start("demo")]
    outputs = [process.communicate(timeout=PATIENCE)[0] for process in both]

    assert [process.returncode for process in both] == [0, 0]
    assert sum(output.count("only half made") for output in outputs) == 1
    assert sum(output.count("Making .venv ...\n") for output in outputs) == 1


def test_a_lock_file_left_behind_is_no_obstacle(installed):
    (installed.root / ".venv.lock").write_text("999999\n")
    installed.require("tiny", "1.4")

    assert installed.run("demo").returncode == 0


def test_a_directory_that_cannot_be_written_to_is_named(checkout):
    if os.geteuid() == 0:
        pytest.skip("root writes anywhere; see the next test")
    checkout.root.chmod(0o555)

    result = checkout.run("demo")

    checkout.root.chmod(0o755)
    assert_unwritable(result)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch to another account")
def test_a_directory_of_somebody_else_is_named(place):
    checkout = Checkout(place / "checkout")
    environment = {"PATH": "/usr/bin:/bin"}

    answer = subprocess.run(
        ["/usr/bin/python3", checkout.root / "bootstrap.py", "demo"],
        user="nobody", extra_groups=[], env=environment, cwd="/", capture_output=True, text=True,
    )  # fmt: skip

    if "Python 3.11 or newer is needed" in answer.stderr:
        pytest.skip("the system's Python is too old for this")
    assert_unwritable(answer)


def assert_unwritable(result: subprocess.CompletedProcess[str]) -> None:
    assert result.returncode == 1
    assert result.stderr.startswith("bootstrap: cannot write to ")
    assert "copy the checkout to a directory of yours" in last_line(result.stderr)


def test_a_database_that_is_of_no_use_stops_it_before_anything_is_started(installed):
    result = installed.run("demo", DATABASE_URL="postgresql://nowhere/nothing")

    assert result.returncode == 1
    assert result.stderr == "that database is of no use\n"
    assert "managed" not in result.stdout
