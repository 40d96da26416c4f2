"""The goals for tasks by their numbers, G1 to G14 without those about flows and plans; and whether they are met."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.tasks.contenders import OURS, RAW
from benchmarks.tasks.summary import MEASURES, Sample, Spread, row, spread_of


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

    @property
    def text(self) -> str:
        if self.over_measure is not None:
            return f"{self.measure} ÷ {self.over_measure}"
        return f"{self.measure} ÷ {self.over}" if self.over else self.measure

    @property
    def bound(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"

    def is_met_by(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


GOALS = [
    Goal(id="G1", measure="drain, 1 process", over="pgqueuer", at_least=1.5),
    Goal(id="G1", measure="drain, 1 process", over="procrastinate", at_least=15),
    Goal(id="G1", measure="drain, 1 process", over="celery", at_least=10),
    Goal(id="G1", measure="drain, 1 process", over="django-tasks-db", at_least=30),
    Goal(id="G2", measure="drain, 2 processes", over="pgqueuer", at_least=1.5),
    Goal(id="G2", measure="drain, 2 processes", over_measure="drain, 1 process", at_least=1.25),
    Goal(id="G3", measure="drain, 1 process", over=RAW, at_least=0.5),
    Goal(id="G4", measure="bulk enqueue", over="pgqueuer", at_least=1.5),
    Goal(id="G4", measure="bulk enqueue, 50 B", over=RAW, at_least=0.6),
    Goal(id="G4", measure="bulk enqueue, 830 B", over=RAW, at_least=0.6),
    Goal(id="G5", measure="single enqueue", over=RAW, at_least=0.7),
    Goal(id="G5", measure="single enqueue", over="django-tasks-db", at_least=1.5),
    Goal(id="G8", measure="pick-up p50, ms", at_most=3),
    Goal(id="G8", measure="pick-up p99, ms", at_most=20),
    Goal(id="G8", measure="pick-up p50, ms", over="pgqueuer", at_most=1.5),
    Goal(id="G9", measure="idle statements/s", at_most=0.5),
    Goal(id="G9", measure="idle CPU, %", at_most=1),
    Goal(id="G10", measure="drain, finished rows", over_measure="drain, nothing finished", at_least=0.9),
    Goal(id="G11", measure="soak, last slice", over_measure="soak, first slice", at_least=0.9),
    Goal(id="G11", measure="soak, dead share", at_most=0.2),
    Goal(id="G12", measure="steady, old transaction", over_measure="steady, no old transaction", at_least=0.7),
    Goal(id="G13", measure="8 producers, wake-ups", over_measure="8 producers, no wake-ups", at_least=0.6),
    Goal(id="G13", measure="8 producers alone, wake-ups", over_measure="8 producers alone, no wake-ups", at_least=0.6),
    Goal(id="G14", measure="drain, jobs for tomorrow", over_measure="drain, nothing for tomorrow", at_least=0.95),
]


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


def verdicts(samples: Sequence[Sample]) -> Iterator[Verdict]:
    """Judge every goal of which this run has measured both sides: a ratio is one of medians."""
    ours = dict.fromkeys(sample.contender for sample in samples if sample.engine == OURS)
    for goal in GOALS:
        for contender in ours:
            mine = _by_round(samples, contender, goal.measure)
            if mine and (verdict := _judge(goal, contender, mine, samples)) is not None:
                yield verdict


def _judge(goal: Goal, contender: str, mine: dict[int, float], samples: Sequence[Sample]) -> Verdict | None:
    if goal.over is None and goal.over_measure is None:
        spread = spread_of(mine.values())
        return Verdict(goal, contender, spread.median, spread)
    other = _best(goal, contender, samples)
    common = [number for number in mine if other.get(number)]
    if not common:
        return None
    ratio = spread_of(mine.values()).median / spread_of(other.values()).median
    return Verdict(goal, contender, ratio, spread_of(mine[number] / other[number] for number in common))


def _best(goal: Goal, contender: str, samples: Sequence[Sample]) -> dict[int, float]:
    """By round: our own other measure, or the measure of the other engine's setting whose median is best."""
    if goal.over is None:
        return _by_round(samples, contender, goal.over_measure or "")
    names = dict.fromkeys(sample.contender for sample in samples if sample.engine == goal.over)
    found = [rounds for name in names if (rounds := _by_round(samples, name, goal.measure))]
    pick = max if MEASURES[goal.measure] else min
    return pick(found, key=lambda rounds: spread_of(rounds.values()).median, default={})


def _by_round(samples: Sequence[Sample], contender: str, measure: str) -> dict[int, float]:
    return {s.round: s.value for s in samples if s.contender == contender and s.measure == measure}


def table(samples: Sequence[Sample], remarks: Sequence[str]) -> str:
    """Each goal that was measured: the value, the goal, met or missed; below, what was smaller than the goals say."""
    head = ["", "what", "value (rounds)", "goal", "verdict"]
    rows = [
        [v.goal.id, f"{v.contender}: {v.goal.text}", _value(v), v.goal.bound, "met" if v.is_met else "**missed**"]
        for v in verdicts(samples)
    ]
    lines = [row(head), row(["---"] * len(head)), *map(row, rows)]
    if remarks:
        lines += ["", "No verdicts on the goals as they are meant, only on this run:", *(f"    {r}" for r in remarks)]
    return "\n".join(lines)


def as_json(samples: Sequence[Sample]) -> list[dict[str, object]]:
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
        for verdict in verdicts(samples)
    ]


def _value(verdict: Verdict) -> str:
    if verdict.rounds.rounds == 1:
        return f"{verdict.value:.2f}"
    return f"{verdict.value:.2f} ({verdict.rounds.lowest:.2f}–{verdict.rounds.highest:.2f})"  # noqa: RUF001
