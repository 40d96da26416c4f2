"""A virtual environment for each peer, made on demand; what cannot be installed is reported, with pip's last words."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.tasks.contenders import Engine

PATIENCE = 600  # seconds for one installation
LIST_VERSIONS = """
import importlib.metadata, json
print(json.dumps({d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}))
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
        venv.create(directory, with_pip=True, clear=True)
        _install(python, engine)
        stamp.write_text(wanted)
    return python


def _install(python: Path, engine: Engine) -> None:
    command = [str(python), "-m", "pip", "install", "-q", "--no-input", "--disable-pip-version-check"]
    try:
        done = subprocess.run([*command, *engine.packages], capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise CannotInstall(f"pip took longer than {PATIENCE} s") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise CannotInstall(lines[-1] if lines else "pip said nothing")


def versions_of(engine: Engine, python: Path) -> dict[str, str]:
    """The versions of what the engine asked for; of ours, what it stands on."""
    answer = subprocess.run([str(python), "-c", LIST_VERSIONS], capture_output=True, text=True, check=True)
    installed = {name.lower(): version for name, version in json.loads(answer.stdout).items()}
    asked = [package.split("==")[0].split("[")[0] for package in engine.packages] or ["django", "psycopg", "pydantic"]
    return {name: installed[name] for name in asked if name in installed}
