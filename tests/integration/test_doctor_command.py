"""`manage.py catbird_doctor`: what it prints, and the exit code that scripts rely on."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from catbird_django.monitoring import doctor
from tests.factories import TaskRunFactory

pytestmark = pytest.mark.django_db

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "doctor.md"


@pytest.fixture(autouse=True)
def _server_as_in_production(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what is true of the tests' server alone: it trades safety for speed, and others use it too."""
    examine = doctor.examine
    of_the_server = {"unsafe_setting", "old_transaction", "dead_rows"}
    monkeypatch.setattr(
        doctor, "examine", lambda **given: [found for found in examine(**given) if found.check_id not in of_the_server]
    )


def run(*arguments: str) -> tuple[int, str]:
    output = StringIO()
    try:
        call_command("catbird_doctor", *arguments, stdout=output, stderr=output)
    except SystemExit as end:
        return int(end.code or 0), output.getvalue()
    return 0, output.getvalue()


def lose_runs(count: int) -> None:
    for _ in range(count):
        TaskRunFactory(started=True, task__name=f"steep_{_}", lease_until=timezone.now() - timedelta(hours=1))


def test_a_healthy_database_is_well() -> None:
    assert run() == (0, "All is well.\n")


def test_errors_are_grouped_with_what_to_do_and_fail() -> None:
    lose_runs(12)

    code, text = run()

    assert code == 1
    assert text.startswith("error lease_ran_out: No worker takes back what was lost")
    assert "steep_0, run " in text
    assert "… and 2 more\n" in text
    assert text.endswith("12 errors, 0 warnings.\n")


def test_warnings_fail_only_when_asked_to() -> None:
    TaskRunFactory(task__name="steep")

    code, text = run()

    assert code == 0
    assert "warning nobody_runs_it: Start a worker" in text
    assert run("--strict")[0] == 1


def test_json_has_every_finding() -> None:
    lose_runs(12)

    code, text = run("--format", "json")

    report = json.loads(text)
    assert (code, report["errors"], report["warnings"], len(report["findings"])) == (1, 12, 0, 12)
    assert report["findings"][0].keys() == {
        "check_id", "severity", "subject", "run_kind", "run_id", "message", "advice"
    }  # fmt: skip


def test_what_cannot_be_checked_is_neither_well_nor_ill() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER FUNCTION cb_doctor RENAME TO cb_elsewhere")

    code, text = run()

    assert code == 2
    assert "could not check database 'default'" in text


def test_every_check_is_explained() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT check_id FROM _cb_doctor_checks()")
        known = {check_id for (check_id,) in cursor.fetchall()} | {"sql_version"}

    listed = {line.split("`")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")}

    assert listed == known
