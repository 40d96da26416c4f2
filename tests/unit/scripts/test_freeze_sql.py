"""`scripts/freeze_sql.py`: what changed is copied, what is frozen stays."""

from pathlib import Path

import pytest

from catbird_django.migrations import _install_sql
from catbird_django.migrations._install_sql import _gone, _installed_before
from scripts import freeze_sql

CLOCK = "CREATE OR REPLACE FUNCTION _cb_now()\nRETURNS timestamptz\nLANGUAGE sql AS $$ SELECT now() $$;\n"
VERSION = "CREATE OR REPLACE FUNCTION cb_schema_version()\nRETURNS text\nLANGUAGE sql AS $$ SELECT 'x' $$;\n"


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with two SQL files and one migration, in place of the real one."""
    for folder in ("sql", "migrations/sql"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "sql/clock.sql").write_text(CLOCK)
    (tmp_path / "sql/version.sql").write_text(VERSION)
    (tmp_path / "migrations/0001_tables.py").write_text("")
    monkeypatch.setattr(freeze_sql, "PRESENT", tmp_path / "sql")
    monkeypatch.setattr(freeze_sql, "MIGRATIONS", tmp_path / "migrations")
    monkeypatch.setattr(freeze_sql, "FROZEN", tmp_path / "migrations/sql")
    monkeypatch.setattr(_install_sql, "FROZEN", tmp_path / "migrations/sql")
    return tmp_path


def test_the_first_freeze_takes_everything_and_writes_the_migration(package: Path) -> None:
    assert freeze_sql.freeze("0002_functions") == ["clock.sql", "version.sql"]

    migration = (package / "migrations/0002_functions.py").read_text()
    assert '("catbird", "0001_tables")' in migration
    assert 'InstallSQL("0002_functions")' in migration
    assert "SELECT '0002_functions'" in (package / "sql/version.sql").read_text()


def test_the_next_freeze_takes_only_what_changed(package: Path) -> None:
    freeze_sql.freeze("0002_functions")
    (package / "sql/clock.sql").write_text(CLOCK + "-- better\n")

    assert freeze_sql.freeze("0003_better_clock") == ["clock.sql", "version.sql"]
    assert (package / "migrations/sql/0002_functions/clock.sql").read_text() == CLOCK
    assert _installed_before("0003_better_clock")["clock.sql"] == CLOCK
    assert _installed_before("0004_later")["clock.sql"] == CLOCK + "-- better\n"


def test_a_frozen_migration_is_not_frozen_over_unless_asked(package: Path) -> None:
    freeze_sql.freeze("0002_functions")

    with pytest.raises(ValueError, match="frozen already"):
        freeze_sql.freeze("0002_functions")
    assert freeze_sql.freeze("0002_functions", again=True)


@pytest.mark.parametrize("name", ["functions", "2_functions", "0002-functions", "0002_Functions", "../0002_x"])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a migration's name"):
        freeze_sql.freeze(name)


def test_history_is_not_rewritten() -> None:
    freeze_sql.freeze("0005_functions")

    with pytest.raises(ValueError, match="0005_functions comes after"):
        freeze_sql.freeze("0003_earlier")


def function(name: str, arguments: str, result: str = "text") -> str:
    return f"CREATE OR REPLACE FUNCTION {name}({arguments})\nRETURNS {result}\nLANGUAGE sql AS $$ SELECT '' $$;\n"


def test_only_functions_that_cannot_be_replaced_are_dropped() -> None:
    """Replacing in place keeps the grants on a function."""
    old = function("cb_same", "p_a int") + function("cb_gone", "") + function("cb_argument", "p_a int")
    old += function("cb_result", "p_a int", "int")
    new = (
        function("cb_same", "p_a   int")
        + function("cb_argument", "p_a int, p_b int")
        + function("cb_result", "p_a int")
    )

    assert _gone(old, new) == ["cb_gone", "cb_argument", "cb_result"]
