"""Failpoints: inert unless a test has asked for them, and then exactly what it asked for."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from catbird_django import failpoints
from catbird_django.failpoints import POINTS, FailpointReached, functions_for

ARMED = {"CATBIRD_TESTING": "1", "CATBIRD_FAILPOINT": "after-claim:raise"}
PACKAGE = Path(failpoints.__file__).parent


@pytest.mark.parametrize("missing", ["CATBIRD_TESTING", "CATBIRD_FAILPOINT"])
def test_without_both_variables_nothing_is_armed(missing: str) -> None:
    reach, before_commit = functions_for({name: value for name, value in ARMED.items() if name != missing})

    assert reach is failpoints._pass_by
    assert before_commit is failpoints._no_transaction


@pytest.mark.parametrize("value", ["0", "true", "yes", ""])
def test_testing_must_be_said_exactly(value: str) -> None:
    assert functions_for({**ARMED, "CATBIRD_TESTING": value})[0] is failpoints._pass_by


def test_the_process_that_runs_the_tests_has_none() -> None:
    assert failpoints.reach is failpoints._pass_by


def test_an_armed_point_acts_and_the_others_do_not() -> None:
    reach, _ = functions_for(ARMED)

    reach("before-settle")
    with pytest.raises(FailpointReached, match="after-claim"):
        reach("after-claim")


def test_a_number_names_the_time_that_counts() -> None:
    reach, _ = functions_for({**ARMED, "CATBIRD_FAILPOINT": "before-renew:raise:2, after-claim:sleep-0.05"})

    reach("before-renew")
    with pytest.raises(FailpointReached):
        reach("before-renew")
    reach("before-renew")

    started = time.monotonic()
    reach("after-claim")
    assert time.monotonic() - started >= 0.05


@pytest.mark.parametrize("wrong", ["nowhere:kill", "after-claim:explode", "after-claim", "after-claim:kill:x"])
def test_what_cannot_be_meant_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="CATBIRD_FAILPOINT"):
        functions_for({**ARMED, "CATBIRD_FAILPOINT": wrong})


def test_kill_kills() -> None:
    code = "from catbird_django.failpoints import reach; reach('after-claim'); print('alive')"
    environment = {**ARMED, "CATBIRD_FAILPOINT": "after-claim:kill"}

    died = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=PACKAGE.parent
    )

    assert (died.returncode, died.stdout) == (-9, "")
    assert "failpoint after-claim:kill" in died.stderr


def test_every_point_is_placed_and_every_placed_point_is_known() -> None:
    text = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "failpoints.py")

    for point in POINTS:
        assert f'"{point}"' in text, point
