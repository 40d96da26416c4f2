"""What is measured of whom, how much of it, and with what."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench import Bench, MeasureFailed, answer_in
from benchmarks.command import parse, sizes_of
from benchmarks.contenders import Contender, Engine
from benchmarks.environments import CannotInstall, interpreter_for, without_directories
from benchmarks.observed import cpu_seconds, peak_memory
from benchmarks.remarks import remarks
from benchmarks.tasks.command import BENCHMARK
from benchmarks.tasks.contenders import CONTENDERS
from benchmarks.tasks.engines.documents import document
from benchmarks.tasks.plan import DOCUMENT_SIZES, steps_of
from benchmarks.tasks.producers import rate_of, without_notify
from benchmarks.tasks.sizes import GOALS_ARE_ABOUT, QUICK
from benchmarks.tasks.tables import MEASURES

PAIRS = ["finished", "tomorrow", "old-transaction", "producers", "payloads"]


def bench_of(contender: Contender) -> Bench:
    """A bench that is only asked for its plan: no server is needed for that."""
    server: Any = None
    return Bench(contender, Path("python"), server, None, print)


def names(contender: Contender, kinds: list[str], round_number: int = 1) -> list[str]:
    return [step.name for step in steps_of(bench_of(contender), kinds, QUICK, round_number)]


def contender(name: str) -> Contender:
    [found] = [each for each in CONTENDERS if each.name == name]
    return found


def test_every_other_round_takes_a_pair_the_other_way_round():
    ours = contender("catbird, sync on threads")

    first, second = names(ours, ["tomorrow"], 1), names(ours, ["tomorrow"], 2)

    assert first == ["drain, nothing for tomorrow", "drain, jobs for tomorrow"]
    assert second == first[::-1]


@pytest.mark.parametrize("each", CONTENDERS, ids=lambda each: each.name)
def test_every_step_gives_a_measure_that_a_table_shows(each: Contender):
    unknown = [name for name in names(each, ["drain", *PAIRS]) if name not in MEASURES]

    assert unknown == []


def test_settings_that_only_concern_drains_are_only_drained():
    assert names(contender("pgqueuer, batch 500"), ["drain", "enqueue", *PAIRS]) == [
        "drain, 1 process",
        "drain, 2 processes",
    ]


def test_settings_that_only_concern_enqueueing_are_neither_drained_nor_idle():
    assert names(contender("catbird, prepared statements"), ["drain", "enqueue", "pickup", "idle", *PAIRS]) == [
        "enqueue"
    ]


def test_the_raw_limit_enqueues_documents_but_is_never_woken():
    assert names(contender("raw SQL limit, batch 100"), ["payloads", "pickup", "idle", "producers"]) == [
        "bulk enqueue, 50 B",
        "bulk enqueue, 830 B",
    ]


@pytest.mark.parametrize("size", DOCUMENT_SIZES)
def test_a_document_has_the_size_asked_for(size: int):
    assert {len(json.dumps(document(number, size)).encode()) for number in (0, 7, 39_999)} == {size}


def test_a_run_with_the_sizes_of_the_goals_has_nothing_to_remark():
    assert list(remarks(sizes_of(BENCHMARK, parse(BENCHMARK, [])), GOALS_ARE_ABOUT)) == []


def test_a_quick_run_says_of_every_size_that_it_is_smaller():
    sizes = sizes_of(BENCHMARK, parse(BENCHMARK, ["--quick"]))

    assert len(list(remarks(sizes, GOALS_ARE_ABOUT))) == len(fields(GOALS_ARE_ABOUT))


def test_a_size_can_be_lowered_by_itself():
    sizes = sizes_of(BENCHMARK, parse(BENCHMARK, ["--finished", "100000", "--soak", "50000"]))

    assert list(remarks(sizes, GOALS_ARE_ABOUT)) == [
        "finished: 100 000 instead of 5 000 000",
        "soak: 50 000 instead of 1 000 000",
    ]


def test_a_size_asked_for_goes_before_quick():
    assert sizes_of(BENCHMARK, parse(BENCHMARK, ["--quick", "--rounds", "2"])).rounds == 2


def test_an_unknown_measure_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parse(BENCHMARK, ["--measure", "drain,speed"])

    assert "no measure 'speed'" in capsys.readouterr().err


def test_producers_are_counted_over_the_time_of_the_slowest():
    assert rate_of([{"jobs": 30, "seconds": 10.0}, {"jobs": 50, "seconds": 20.0}]) == 4.0


def test_wake_ups_are_switched_off_beside_what_else_is_set():
    added = without_notify({"BENCH_CATBIRD": '{"PREFETCH": 400}'})

    assert json.loads(added["BENCH_CATBIRD"]) == {"PREFETCH": 400, "NOTIFY": False}


def test_a_peer_for_which_every_python_is_too_old_is_not_measured():
    with pytest.raises(CannotInstall, match=r"needs Python 3\.99"):
        interpreter_for(Engine(name="peer", module="peer", packages=["peer==1"], python=(3, 99)))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc here")
def test_the_cpu_time_of_a_process_is_what_it_says_itself():
    before = sum(os.times()[:2])

    seen = cpu_seconds(os.getpid())

    assert seen is not None
    assert before - 0.02 <= seen <= sum(os.times()[:2]) + 0.02  # both count in hundredths


def test_a_process_that_is_gone_has_no_cpu_time():
    assert cpu_seconds(2**22 + 1) is None  # no such id can be given out


def test_an_adapter_that_does_not_answer_fails_with_its_last_words():
    with pytest.raises(MeasureFailed, match="bulk: no such table"):
        answer_in("starting\n", "Traceback\nno such table\n", what="bulk")


def test_why_a_peer_could_not_be_installed_says_nothing_of_where():
    said = "ERROR: Invalid member in the tar file /tmp/pip-1/peer.tar.gz: '../README.md' is outside"

    assert without_directories(said) == "ERROR: Invalid member in the tar file peer.tar.gz: '../README.md' is outside"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc here")
def test_the_peak_memory_of_a_process_is_never_less_than_it_has_now():
    held = bytearray(32 * 1024 * 1024)

    assert len(held) / 2**20 < (peak_memory(os.getpid()) or 0)


def test_a_process_that_is_gone_had_no_memory():
    assert peak_memory(2**22 + 1) is None
