"""What the benchmark makes of its samples."""

from __future__ import annotations

from benchmarks.tasks.summary import Sample, ratios, spread_of, table


def sample(contender: str, engine: str, value: float, *, measure: str = "drain, 1 process") -> Sample:
    return Sample(round=1, contender=contender, engine=engine, measure=measure, value=value, load=0.0)


def test_a_spread_is_the_median_between_the_extremes():
    spread = spread_of([300.0, 100.0, 200.0])

    assert (spread.median, spread.lowest, spread.highest) == (200.0, 100.0, 300.0)
    assert str(spread) == "200 (100–300)"  # noqa: RUF001


def test_we_are_compared_with_the_best_setting_of_each_engine():
    samples = [sample("ours", "ours", 30.0), sample("peer 100", "peer", 10.0), sample("peer 500", "peer", 20.0)]

    assert ratios(samples)["ours ÷ peer"] == {"drain, 1 process": "1.50× of peer 500"}  # noqa: RUF001


def test_the_best_latency_is_the_shortest():
    measure = "pick-up p50, ms"
    samples = [
        sample("ours", "ours", 3.0, measure=measure),
        sample("slow", "peer", 6.0, measure=measure),
        sample("fast", "peer", 2.0, measure=measure),
    ]

    assert ratios(samples)["ours ÷ peer"][measure] == "1.50× of fast"  # noqa: RUF001


def test_what_was_not_measured_is_a_dash_and_not_a_number():
    text = table([sample("ours", "ours", 30.0)])

    assert "| ours | 30.00 | – |" in text  # noqa: RUF001
