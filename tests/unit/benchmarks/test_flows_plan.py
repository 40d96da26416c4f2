"""What is measured of flows, of whom, how much of it, and what a server's log gives."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench import CHECKOUT, Bench
from benchmarks.command import parse, sizes_of
from benchmarks.contenders import OURS, Contender, names_of
from benchmarks.flows.command import BENCHMARK
from benchmarks.flows.contenders import CONTENDERS
from benchmarks.flows.goals import GOALS
from benchmarks.flows.measures import BATCH_SIZES, Load
from benchmarks.flows.plan import DOUBLINGS, KINDS, PIECES, load_of, notes, steps_of
from benchmarks.flows.shapes import DIAMOND, FANOUT, LARGE_MAP, LINEAR, MAP
from benchmarks.flows.sizes import GOALS_ARE_ABOUT, QUICK
from benchmarks.flows.statements import statements_in
from benchmarks.flows.tables import MEASURES, TABLES
from benchmarks.goals import verdicts
from benchmarks.remarks import remarks
from tests.unit.benchmarks.samples import rounds_of

LOG = """\
2026-11-18 20:00:00.000 UTC [11] LOG:  duration: 0.250 ms  parse <unnamed>: SELECT * FROM cb_claim_items(p_worker_id => $1)
2026-11-18 20:00:00.001 UTC [12] LOG:  duration: 0.500 ms  statement: BEGIN
2026-11-18 20:00:00.002 UTC [11] LOG:  duration: 0.750 ms  bind <unnamed>: SELECT * FROM cb_claim_items(p_worker_id => $1)
2026-11-18 20:00:00.003 UTC [4951] LOG:  checkpoint starting: immediate force wait
2026-11-18 20:00:00.004 UTC [11] LOG:  duration: 2.000 ms  execute <unnamed>: SELECT * FROM cb_claim_items(p_worker_id => $1)
2026-11-18 20:00:00.005 UTC [11] LOG:  duration: 1.000 ms  execute <unnamed>: SELECT *
\tFROM cb_claim_steps()
"""  # noqa: E501


def bench_of(contender: Contender) -> Bench:
    """A bench that is only asked for its plan: no server is needed for that."""
    server: Any = None
    return Bench(contender, Path("python"), server, None, print)


def names(contender: Contender, kinds: list[str], round_number: int = 1) -> list[str]:
    return [step.name for step in steps_of(bench_of(contender), kinds, QUICK, round_number)]


def contender(name: str) -> Contender:
    [found] = [each for each in CONTENDERS if each.name == name]
    return found


def test_every_engine_has_its_adapter_and_its_packages_are_pinned():
    engines = [each.engine for each in CONTENDERS]

    assert [e.name for e in engines if not (CHECKOUT / f"{e.module.replace('.', '/')}.py").exists()] == []
    assert [package for engine in engines for package in engine.packages if "==" not in package] == []


@pytest.mark.parametrize("each", CONTENDERS, ids=lambda each: each.name)
def test_every_flow_that_is_worked_off_has_its_column(each: Contender):
    kinds = ["linear", "diamond", "fanout", "map", "large-map", "doubling", "claims", "loop"]

    assert [name for name in names(each, kinds) if name not in MEASURES] == []


def test_every_goal_is_about_measures_and_engines_that_there_are():
    unknown = [
        goal
        for goal in GOALS
        if goal.measure not in MEASURES
        or (goal.over_measure or goal.measure) not in MEASURES
        or (goal.over or OURS) not in names_of(CONTENDERS)
        or not any(goal.among in each.name for each in CONTENDERS if each.engine.name == (goal.over or OURS))
    ]

    assert unknown == []


def test_a_contender_takes_part_only_in_the_shapes_it_knows():
    sync = contender("dbos, sync workflow, 100 at once")

    assert names(sync, ["linear", "fanout", "map"]) == ["linear, 1 process", "linear, 2 processes"]


def test_what_concerns_only_us_is_measured_with_one_setting_of_ours():
    kinds = ["doubling", "claims"]

    assert {each.name for each in CONTENDERS if names(each, kinds)} == {"catbird, sync on threads"}


def test_batches_and_loops_are_measured_without_a_worker():
    assert {each.name for each in CONTENDERS if names(each, ["batches", "loop"])} == {"catbird's SQL alone"}


def test_every_other_round_takes_one_and_two_processes_the_other_way_round():
    ours = contender("catbird, sync on threads")

    assert names(ours, ["linear"], 2) == names(ours, ["linear"], 1)[::-1]


def test_the_large_map_has_its_own_steps_and_each_run_its_final_ones():
    ours = contender("catbird, sync on threads")

    loads = [load_of(ours, shape, GOALS_ARE_ABOUT) for shape in (LINEAR, DIAMOND, FANOUT, MAP, LARGE_MAP)]

    assert [load.steps for load in loads] == [30_000, 30_000, 30_600, 10_002, 100_002]


def test_a_slow_engine_has_fewer_runs_and_shorter_maps_and_the_notes_say_so():
    absurd = contender("absurd, steps of one task")

    assert (load_of(absurd, LINEAR, GOALS_ARE_ABOUT).flows, load_of(absurd, MAP, GOALS_ARE_ABOUT).items) == (1000, 1000)
    assert list(notes([absurd], GOALS_ARE_ABOUT)) == ["absurd has 1/10 of the runs, and maps of 1/10 of the items"]


def test_a_fan_out_is_never_made_narrower():
    loads = [load_of(each, FANOUT, QUICK) for each in CONTENDERS]

    assert {load.items for load in loads} == {100}


def test_the_function_of_a_reduce_does_not_count_itself():
    reduced = bench_of(contender("catbird, sync, reduce at the end"))

    assert Load(FANOUT, 3, 100).calls(reduced) == 3 * 101


def test_each_map_of_the_doubling_is_twice_as_large_as_the_one_before():
    factors = list(DOUBLINGS.values())

    assert [larger / smaller for smaller, larger in pairwise(factors)] == [2, 2, 2]


def test_one_more_statement_in_the_largest_batch_misses_the_goal():
    smallest, *_, largest = BATCH_SIZES
    samples = [
        *rounds_of("SQL", OURS, f"{PIECES[0]}: writes, batch of {smallest}", 9.0),
        *rounds_of("SQL", OURS, f"{PIECES[0]}: writes, batch of {largest}", 10.0),
    ]

    [verdict] = verdicts(samples, GOALS, TABLES)

    assert (verdict.goal.id, verdict.is_met) == ("G7", False)


def test_a_fan_out_is_compared_with_items_that_any_worker_can_take():
    measure = f"{FANOUT.title}, 1 process"
    samples = [
        *rounds_of("ours", OURS, measure, 6000.0),
        *rounds_of("dbos, async workflow, gather, 100 at once", "dbos", measure, 300.0),
        *rounds_of("dbos, queued children, 100 at once", "dbos", measure, 100.0),
    ]

    [verdict] = verdicts(samples, GOALS, TABLES)

    assert (verdict.value, verdict.is_met) == (60.0, True)


def test_a_run_with_the_sizes_of_the_goals_has_nothing_to_remark_and_a_quick_one_everything():
    whole, quick = (sizes_of(BENCHMARK, parse(BENCHMARK, words)) for words in ([], ["--quick"]))

    assert list(remarks(whole, GOALS_ARE_ABOUT)) == []
    assert len(list(remarks(quick, GOALS_ARE_ABOUT))) == len(fields(GOALS_ARE_ABOUT))


def test_all_kinds_can_be_asked_for():
    assert parse(BENCHMARK, ["--measure", ",".join(KINDS)]).measure == list(KINDS)


def test_a_statement_took_what_its_phases_took_together_whoever_came_in_between():
    found = [(each.text, each.milliseconds) for each in statements_in(LOG)]

    assert found == [
        ("BEGIN", 0.5),
        ("SELECT * FROM cb_claim_items(p_worker_id => $1)", 3.0),
        ("SELECT *\n\tFROM cb_claim_steps()", 1.0),
    ]
