"""W8: when a process has done enough."""

from __future__ import annotations

import pytest

from catbird_django.worker.recycling import MEGABYTE, Limits, memory_in_use


def test_without_limits_a_process_goes_on() -> None:
    assert Limits().exceeded_by(10**9) == ""


@pytest.mark.parametrize(("runs", "reason"), [(9, ""), (10, "it has finished 10 runs")])
def test_so_many_runs_are_enough(runs: int, reason: str) -> None:
    assert Limits(runs=10).exceeded_by(runs) == reason


def test_memory_is_counted_in_megabytes() -> None:
    used = memory_in_use() // MEGABYTE

    assert 1 < used < 4096
    assert Limits(memory=used + 1024).exceeded_by(1) == ""
    assert Limits(memory=1).exceeded_by(0).endswith(" MB of memory")


def test_memory_that_is_taken_is_noticed() -> None:
    before = memory_in_use()

    taken = bytearray(b"x" * 64 * MEGABYTE)

    assert memory_in_use() - before > 32 * MEGABYTE
    del taken
