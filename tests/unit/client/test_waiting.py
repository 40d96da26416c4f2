"""R9: whom a notification concerns."""

from __future__ import annotations

from typing import Any

import pytest

from catbird_django.client.waiting import _runs_in
from catbird_django.statuses import RunKind


@pytest.mark.parametrize(
    ("payload", "runs"),
    [
        ("task_runs 1", {(RunKind.TASK, 1)}),
        ("task_runs 1,22", {(RunKind.TASK, 1), (RunKind.TASK, 22)}),
        ("flow_runs 1", {(RunKind.FLOW, 1)}),
        ("", None),
        ("flow_runs ", None),
        ("job_states 1", None),
        ("flow_runs x", None),
    ],
)
def test_a_run_of_a_task_is_not_taken_for_one_of_a_flow(payload: str, runs: Any) -> None:
    """What cannot be understood concerns everybody."""
    assert _runs_in(payload) == runs
