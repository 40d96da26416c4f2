"""Medians, spreads and ratios: the table for people, the JSON for whoever wants to look closer."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.contenders import OURS


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement of one contender in one round."""

    round: int
    contender: str
    engine: str
    measure: str
    value: float
    load: float


@dataclass(frozen=True, slots=True)
class Spread:
    """What several rounds gave."""

    median: float
    lowest: float
    highest: float
    rounds: int

    def __str__(self) -> str:
        if self.rounds == 1:
            return _number(self.median)
        return f"{_number(self.median)} ({_number(self.lowest)}–{_number(self.highest)})"  # noqa: RUF001


# Tables, each with its columns; whether more is better, or None where a ratio would say nothing.
Tables = Sequence[Mapping[str, bool | None]]


def measures_in(tables: Tables) -> dict[str, bool | None]:
    """All columns; whether more is better."""
    return {measure: more_is_better for columns in tables for measure, more_is_better in columns.items()}


def spread_of(values: Iterable[float]) -> Spread:
    ordered = sorted(values)
    return Spread(statistics.median(ordered), ordered[0], ordered[-1], len(ordered))


def spreads(samples: Sequence[Sample], tables: Tables) -> dict[str, dict[str, Spread]]:
    """By contender, then by measure, in the order in which they were measured."""
    names = dict.fromkeys(sample.contender for sample in samples)
    return {
        name: {
            measure: spread_of(values)
            for measure in measures_in(tables)
            if (values := [s.value for s in samples if s.contender == name and s.measure == measure])
        }
        for name in names
    }


def ratios(samples: Sequence[Sample], tables: Tables) -> dict[str, dict[str, str]]:
    """Our contenders over the best of each other engine, per measure: the ratio of medians, and which it was."""
    found = spreads(samples, tables)
    engine_of = {sample.contender: sample.engine for sample in samples}
    ours = [name for name in found if engine_of[name] == OURS]
    others = dict.fromkeys(engine for engine in engine_of.values() if engine != OURS)
    return {
        f"{mine} ÷ {other}": {
            measure: f"{found[mine][measure].median / best[1]:.2f}× of {best[0]}"  # noqa: RUF001
            for measure, more_is_better in measures_in(tables).items()
            if more_is_better is not None
            and measure in found[mine]
            and (best := _best(found, [n for n in found if engine_of[n] == other], measure, more_is_better)) is not None
            and best[1] > 0
        }
        for mine in ours
        for other in others
    }


def table(samples: Sequence[Sample], tables: Tables) -> str:
    """Every contender's medians, as Markdown, and our ratios below."""
    found = spreads(samples, tables)
    lines = [line for columns in tables for line in _lines_of(list(columns), found)]
    for pair, by_measure in ratios(samples, tables).items():
        if by_measure:
            lines += [f"{pair}:", *(f"    {measure}: {ratio}" for measure, ratio in by_measure.items())]
    return "\n".join(lines)


def _lines_of(columns: Sequence[str], found: dict[str, dict[str, Spread]]) -> list[str]:
    """One table, with a row for each contender of which anything in it was measured; nothing without a row."""
    rows = [
        [name, *(str(measured[column]) if column in measured else "–" for column in columns)]  # noqa: RUF001
        for name, measured in found.items()
        if any(column in measured for column in columns)
    ]
    head = ["contender", *columns]
    return [row(head), row(["---"] * len(head)), *map(row, rows), ""] if rows else []


def as_json(samples: Sequence[Sample], tables: Tables) -> dict[str, Any]:
    return {
        "samples": [asdict(sample) for sample in samples],
        "medians": {
            name: {measure: asdict(spread) for measure, spread in found.items()}
            for name, found in spreads(samples, tables).items()
        },
        "ratios": ratios(samples, tables),
    }


def _best(
    found: dict[str, dict[str, Spread]], names: Sequence[str], measure: str, more_is_better: bool
) -> tuple[str, float] | None:
    medians = [(name, found[name][measure].median) for name in names if measure in found[name]]
    if not medians:
        return None
    return (max if more_is_better else min)(medians, key=lambda item: item[1])


def row(cells: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if value >= 100 else f"{value:.2f}"
