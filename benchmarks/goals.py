"""Goals, by their numbers, and whether a run has met them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.contenders import OURS
from benchmarks.summary import Sample, Spread, Tables, measures_in, row, spread_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a measure of ours should come to: by itself, or over a measure of another engine's best setting."""

    id: str
    measure: str
    at_least: float | None = None
    at_most: float | None = None
    over: str | None = None
    """The engine to divide by; with `over_measure` alone, the same contender of ours."""
    over_measure: str | None = None
    among: str = ""
    """Only settings of the other engine with this in their name."""
    of: str = ""
    """Only contenders of ours with this in their name."""

    @property
    def text(self) -> str:
        if self.over_measure is not None:
            return f"{self.measure} ÷ {self.over_measure}"
        over = f"{self.over}, {self.among}" if self.among else self.over
        return f"{self.measure} ÷ {over}" if over else self.measure

    @property
    def bound(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"

    def is_met_by(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one contender of ours stands to a goal; `rounds` is what the rounds gave, each by itself."""

    goal: Goal
    contender: str
    value: float
    rounds: Spread

    @property
    def is_met(self) -> bool:
        return self.goal.is_met_by(self.value)


def verdicts(samples: Sequence[Sample], goals: Sequence[Goal], tables: Tables) -> Iterator[Verdict]:
    """Judge every goal of which this run has measured both sides: a ratio is one of medians."""
    ours = dict.fromkeys(sample.contender for sample in samples if sample.engine == OURS)
    for goal in goals:
        for contender in [name for name in ours if goal.of in name]:
            mine = _by_round(samples, contender, goal.measure)
            if mine and (verdict := _judge(goal, contender, mine, samples, tables)) is not None:
                yield verdict


def _judge(
    goal: Goal, contender: str, mine: dict[int, float], samples: Sequence[Sample], tables: Tables
) -> Verdict | None:
    if goal.over is None and goal.over_measure is None:
        spread = spread_of(mine.values())
        return Verdict(goal, contender, spread.median, spread)
    other = _best(goal, contender, samples, tables)
    common = [number for number in mine if other.get(number)]
    if not common:
        return None
    ratio = spread_of(mine.values()).median / spread_of(other.values()).median
    return Verdict(goal, contender, ratio, spread_of(mine[number] / other[number] for number in common))


def _best(goal: Goal, contender: str, samples: Sequence[Sample], tables: Tables) -> dict[int, float]:
    """By round: our own other measure, or the measure of the other engine's setting whose median is best."""
    if goal.over is None:
        return _by_round(samples, contender, goal.over_measure or "")
    names = dict.fromkeys(s.contender for s in samples if s.engine == goal.over and goal.among in s.contender)
    found = [rounds for name in names if (rounds := _by_round(samples, name, goal.measure))]
    pick = max if measures_in(tables)[goal.measure] else min
    return pick(found, key=lambda rounds: spread_of(rounds.values()).median, default={})


def _by_round(samples: Sequence[Sample], contender: str, measure: str) -> dict[int, float]:
    return {s.round: s.value for s in samples if s.contender == contender and s.measure == measure}


def table(samples: Sequence[Sample], goals: Sequence[Goal], tables: Tables, remarks: Sequence[str]) -> str:
    """Each goal that was measured: the value, the goal, met or missed; below, what was smaller than the goals say."""
    head = ["", "what", "value (rounds)", "goal", "verdict"]
    rows = [
        [v.goal.id, f"{v.contender}: {v.goal.text}", _value(v), v.goal.bound, "met" if v.is_met else "**missed**"]
        for v in verdicts(samples, goals, tables)
    ]
    lines = [row(head), row(["---"] * len(head)), *map(row, rows)]
    if remarks:
        lines += ["", "No verdicts on the goals as they are meant, only on this run:", *(f"    {r}" for r in remarks)]
    return "\n".join(lines)


def as_json(samples: Sequence[Sample], goals: Sequence[Goal], tables: Tables) -> list[dict[str, object]]:
    return [
        {
            "goal": verdict.goal.id,
            "contender": verdict.contender,
            "what": verdict.goal.text,
            "value": verdict.value,
            "lowest_round": verdict.rounds.lowest,
            "highest_round": verdict.rounds.highest,
            "bound": verdict.goal.bound,
            "met": verdict.is_met,
        }
        for verdict in verdicts(samples, goals, tables)
    ]


def _value(verdict: Verdict) -> str:
    if verdict.rounds.rounds == 1:
        return f"{verdict.value:.2f}"
    return f"{verdict.value:.2f} ({verdict.rounds.lowest:.2f}–{verdict.rounds.highest:.2f})"  # noqa: RUF001
