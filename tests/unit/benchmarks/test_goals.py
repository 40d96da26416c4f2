"""Which goals a run has met."""

from __future__ import annotations

import pytest

from benchmarks.contenders import names_of
from benchmarks.goals import Goal, Verdict, as_json, table, verdicts
from benchmarks.summary import Sample
from benchmarks.tasks.contenders import CONTENDERS
from benchmarks.tasks.goals import GOALS
from benchmarks.tasks.tables import MEASURES, TABLES
from tests.unit.benchmarks.samples import rounds_of

DRAIN = "drain, 1 process"


def verdict_of(samples: list[Sample], goal: str, text: str) -> Verdict:
    [found] = [v for v in verdicts(samples, GOALS, TABLES) if v.goal.id == goal and v.goal.text == text]
    return found


def test_every_goal_is_about_measures_and_engines_that_there_are():
    unknown = [
        goal
        for goal in GOALS
        if goal.measure not in MEASURES
        or (goal.over_measure or goal.measure) not in MEASURES
        or (goal.over or names_of(CONTENDERS)[0]) not in names_of(CONTENDERS)
    ]

    assert unknown == []


def test_every_goal_has_exactly_one_bound():
    assert [goal for goal in GOALS if (goal.at_least is None) == (goal.at_most is None)] == []


def test_a_goal_over_a_peer_takes_the_peers_best_setting_by_its_median():
    samples = [
        *rounds_of("ours", "ours", DRAIN, 300.0, 300.0, 300.0),
        *rounds_of("batch 100", "pgqueuer", DRAIN, 100.0, 900.0, 100.0),
        *rounds_of("batch 500", "pgqueuer", DRAIN, 200.0, 200.0, 200.0),
    ]

    verdict = verdict_of(samples, "G1", f"{DRAIN} ÷ pgqueuer")

    assert verdict.value == 1.5
    assert verdict.is_met


def test_the_best_of_a_latency_is_the_shortest():
    measure = "pick-up p50, ms"
    samples = [
        *rounds_of("ours", "ours", measure, 2.0),
        *rounds_of("slow", "pgqueuer", measure, 4.0),
        *rounds_of("fast", "pgqueuer", measure, 1.0),
    ]

    verdict = verdict_of(samples, "G8", f"{measure} ÷ pgqueuer")

    assert verdict.value == 2.0
    assert not verdict.is_met


def test_a_condition_is_compared_with_the_same_contender_without_it():
    samples = [
        *rounds_of("threads", "ours", "drain, nothing finished", 100.0),
        *rounds_of("threads", "ours", "drain, finished rows", 80.0),
        *rounds_of("async", "ours", "drain, nothing finished", 10.0),
    ]

    verdict = verdict_of(samples, "G10", "drain, finished rows ÷ drain, nothing finished")

    assert (verdict.contender, verdict.value, verdict.is_met) == ("threads", 0.8, False)


def test_a_ratio_is_one_of_medians_and_its_spread_is_that_of_the_rounds():
    samples = [
        *rounds_of("ours", "ours", "soak, first slice", 100.0, 200.0, 100.0),
        *rounds_of("ours", "ours", "soak, last slice", 50.0, 200.0, 120.0),
    ]

    verdict = verdict_of(samples, "G11", "soak, last slice ÷ soak, first slice")

    assert verdict.value == 1.2
    assert (verdict.rounds.lowest, verdict.rounds.highest) == (0.5, 1.2)


def test_a_round_in_which_one_side_failed_is_left_out_of_the_spread():
    first, *_, third = rounds_of("ours", "ours", "drain, jobs for tomorrow", 90.0, 1.0, 95.0)
    samples = [first, third, *rounds_of("ours", "ours", "drain, nothing for tomorrow", 100.0, 100.0, 100.0)]

    verdict = verdict_of(samples, "G14", "drain, jobs for tomorrow ÷ drain, nothing for tomorrow")

    assert verdict.rounds.rounds == 2


@pytest.mark.parametrize(("share", "is_met"), [(0.2, True), (0.21, False)])
def test_a_goal_without_another_side_is_about_the_median_itself(share: float, is_met: bool):
    samples = rounds_of("ours", "ours", "soak, dead share", 0.0, share, 9.0)

    verdict = verdict_of(samples, "G11", "soak, dead share")

    assert (verdict.value, verdict.is_met) == (share, is_met)


def test_a_goal_of_which_only_one_side_was_measured_has_no_verdict():
    assert list(verdicts(rounds_of("ours", "ours", DRAIN, 300.0), GOALS, TABLES)) == []


def test_peers_have_no_goals():
    assert list(verdicts(rounds_of("batch 100", "pgqueuer", "idle statements/s", 9.0), GOALS, TABLES)) == []


def test_the_table_says_met_or_missed_and_what_was_made_smaller():
    samples = [
        *rounds_of("ours", "ours", "idle statements/s", 0.4),
        *rounds_of("ours", "ours", "pick-up p50, ms", 3.5),
    ]

    text = table(samples, GOALS, TABLES, ["soak: 20 000 instead of 1 000 000"])

    assert "| G9 | ours: idle statements/s | 0.40 | ≤ 0.5 | met |" in text
    assert "| G8 | ours: pick-up p50, ms | 3.50 | ≤ 3 | **missed** |" in text
    assert "20 000 instead of 1 000 000" in text


def test_the_verdicts_are_kept_as_json():
    [kept] = as_json(rounds_of("ours", "ours", "idle statements/s", 0.4, 0.6, 0.5), GOALS, TABLES)

    assert (kept["goal"], kept["value"], kept["lowest_round"], kept["met"]) == ("G9", 0.5, 0.4, True)


def test_a_goal_may_be_about_some_settings_of_a_peer_only():
    goal = Goal(id="G6", measure=DRAIN, over="peer", among="queued", at_least=3)
    samples = [
        *rounds_of("ours", "ours", DRAIN, 300.0),
        *rounds_of("peer, in memory", "peer", DRAIN, 200.0),
        *rounds_of("peer, queued", "peer", DRAIN, 100.0),
    ]

    [verdict] = verdicts(samples, [goal], TABLES)

    assert (verdict.value, verdict.goal.text) == (3.0, f"{DRAIN} ÷ peer, queued")


def test_a_goal_may_be_about_some_contenders_of_ours_only():
    goal = Goal(id="G6", measure=DRAIN, of="threads", at_least=100)
    samples = [*rounds_of("on threads", "ours", DRAIN, 300.0), *rounds_of("on the loop", "ours", DRAIN, 20.0)]

    assert [verdict.contender for verdict in verdicts(samples, [goal], TABLES)] == ["on threads"]
