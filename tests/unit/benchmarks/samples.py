"""Samples to try summaries on."""

from __future__ import annotations

from benchmarks.summary import Sample


def sample(
    contender: str, engine: str, value: float, *, measure: str = "drain, 1 process", round_number: int = 1
) -> Sample:
    return Sample(round=round_number, contender=contender, engine=engine, measure=measure, value=value, load=0.0)


def rounds_of(contender: str, engine: str, measure: str, *values: float) -> list[Sample]:
    """One sample per round."""
    return [
        sample(contender, engine, value, measure=measure, round_number=number)
        for number, value in enumerate(values, start=1)
    ]
