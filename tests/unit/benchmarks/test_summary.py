"""What the benchmark makes of its samples."""

from __future__ import annotations

from benchmarks.summary import as_json, ratios, spread_of, table
from benchmarks.tasks.tables import TABLES
from tests.unit.benchmarks.samples import sample


def test_a_spread_is_the_median_between_the_extremes():
    spread = spread_of([300.0, 100.0, 200.0])

    assert (spread.median, spread.lowest, spread.highest) == (200.0, 100.0, 300.0)
    assert str(spread) == "200 (100–300)"  # noqa: RUF001


def test_we_are_compared_with_the_best_setting_of_each_engine():
    samples = [sample("ours", "ours", 30.0), sample("peer 100", "peer", 10.0), sample("peer 500", "peer", 20.0)]

    assert ratios(samples, TABLES)["ours ÷ peer"] == {"drain, 1 process": "1.50× of peer 500"}  # noqa: RUF001


def test_the_best_latency_is_the_shortest():
    measure = "pick-up p50, ms"
    samples = [
        sample("ours", "ours", 3.0, measure=measure),
        sample("slow", "peer", 6.0, measure=measure),
        sample("fast", "peer", 2.0, measure=measure),
    ]

    assert ratios(samples, TABLES)["ours ÷ peer"][measure] == "1.50× of fast"  # noqa: RUF001


def test_what_was_not_measured_is_a_dash_and_not_a_number():
    text = table([sample("ours", "ours", 30.0)], TABLES)

    assert "| ours | 30.00 | – |" in text  # noqa: RUF001


def test_a_table_of_which_nothing_was_measured_is_left_out():
    text = table([sample("ours", "ours", 30.0, measure="soak, first slice")], TABLES)

    assert "soak, last slice" in text
    assert "pick-up p50, ms" not in text


def test_a_contender_has_no_row_in_a_table_it_was_not_measured_for():
    text = table([sample("ours", "ours", 3.0), sample("peer", "peer", 2.0, measure="soak, first slice")], TABLES)

    assert text.count("| peer |") == 1


def test_a_share_of_dead_rows_is_not_compared_with_a_peer():
    measure = "soak, dead share"
    samples = [sample("ours", "ours", 0.1, measure=measure), sample("peer", "peer", 0.2, measure=measure)]

    assert ratios(samples, TABLES)["ours ÷ peer"] == {}


def test_what_no_table_shows_is_kept_for_whoever_looks_closer():
    kept = as_json([sample("ours", "ours", 9.0, measure="soak, slice 4 of 10")], TABLES)

    assert [each["measure"] for each in kept["samples"]] == ["soak, slice 4 of 10"]
