"""One short round of every fault: nothing is lost, nothing completes twice, and work goes on in time (SPEC 14, W3-W5).

Longer campaigns: `python3 bootstrap.py chaos --rounds 20`.
"""

from __future__ import annotations

import pytest

from tests.chaos.conftest import Results
from tests.chaos.scenario import all_scenarios


@pytest.mark.timeout(900)  # the first one waits for all of them
@pytest.mark.parametrize("name", sorted(all_scenarios()))
def test_it_holds_that(name: str, results: Results) -> None:
    result = results[name]
    if result.skipped:
        pytest.skip(result.skipped)
    assert not result.problem, result.problem
