"""A virtual environment for each peer, made on demand; what cannot be installed is reported, with pip's last words."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.contenders import Engine

PATIENCE = 600  # seconds for one installation
QUIETLY = ("-q", "--no-input", "--disable-pip-version-check")
NEWEST_MINOR = 20  # no Python 3 newer than this is looked for
LIST_VERSIONS = """
import importlib.metadata, json, platform
found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
print(json.dumps({**found, "python": platform.python_version()}))
"""


class CannotInstall(Exception):
    """A peer's packages cannot be had here."""


def python_of(engine: Engine, home: Path) -> Path:
    """The Python that runs this engine; its environment is made first, if need be."""
    if not engine.packages:
        return Path(sys.executable)
    directory = home / engine.name
    python, stamp = directory / "bin" / "python", directory / "installed"
    wanted = "\n".join(engine.packages)
    if not (stamp.exists() and stamp.read_text() == wanted):
        _run([str(interpreter_for(engine)), "-m", "venv", "--clear", str(directory)])
        _run([str(python), "-m", "pip", "install", *QUIETLY, *engine.packages])
        stamp.write_text(wanted)
    return python


def interpreter_for(engine: Engine) -> Path:
    """A Python that is new enough for this engine: ours, or else the newest on the path or in pyenv."""
    if sys.version_info >= engine.python:
        return Path(sys.executable)
    for candidate in _other_interpreters(engine.python):
        # Asked, because pyenv's stand-ins are on the path for versions that are not switched on.
        if subprocess.run([candidate, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
            return candidate
    raise CannotInstall("it needs Python {}.{} or newer, and there is none here".format(*engine.python))


def _other_interpreters(oldest: tuple[int, int]) -> Iterator[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(NEWEST_MINOR, oldest[1] - 1, -1):
        if found := shutil.which(f"python3.{minor}"):
            yield Path(found)
        yield from sorted(pyenv.glob(f"3.{minor}.*/bin/python3.{minor}"), reverse=True)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise CannotInstall(f"installing took longer than {PATIENCE} s") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise CannotInstall(without_directories(lines[-1]) if lines else f"{Path(command[0]).name} said nothing")


def without_directories(text: str) -> str:
    """The text with files and addresses by their last name only: their place is this machine's business."""
    return re.sub(r"/\S*/", "", text)


def versions_of(engine: Engine, python: Path) -> dict[str, str]:
    """The versions of Python and of what the engine asked for; of ours, what it stands on."""
    answer = subprocess.run([str(python), "-c", LIST_VERSIONS], capture_output=True, text=True, check=True)
    installed = {name.lower(): version for name, version in json.loads(answer.stdout).items()}
    asked = [package.split("==")[0].split("[")[0] for package in engine.packages] or ["django", "psycopg", "pydantic"]
    return {name: installed[name] for name in ["python", *asked] if name in installed}
