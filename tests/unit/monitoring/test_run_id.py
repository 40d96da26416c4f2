"""What counts as the number of a run when somebody types it."""

from __future__ import annotations

import pytest

from catbird_django.monitoring.queries import run_id_in


@pytest.mark.parametrize(("typed", "run_id"), [("17", 17), (" #17 ", 17), (str(2**63 - 1), 2**63 - 1)])
def test_a_number_is_a_run(typed: str, run_id: int) -> None:
    assert run_id_in(typed) == run_id


@pytest.mark.parametrize("typed", ["", "greet", "-1", "1.5", "1e3", "٣", "1" * 40, "17 OR 1=1"])
def test_anything_else_is_not(typed: str) -> None:
    assert run_id_in(typed) is None
