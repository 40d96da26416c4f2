"""`bench flows`: what makes it different from other benchmarks."""

from __future__ import annotations

from benchmarks.command import run
from benchmarks.flows.contenders import CONTENDERS
from benchmarks.flows.goals import GOALS
from benchmarks.flows.plan import KINDS, notes, steps_of
from benchmarks.flows.sizes import GOALS_ARE_ABOUT, QUICK
from benchmarks.flows.tables import TABLES
from benchmarks.run import Benchmark

BENCHMARK = Benchmark(
    name="flows",
    contenders=CONTENDERS,
    kinds=list(KINDS),
    steps_of=steps_of,
    tables=TABLES,
    goals=GOALS,
    goals_are_about=GOALS_ARE_ABOUT,
    quick=QUICK,
    own_sizes={
        "rounds": "rounds to take medians of",
        "linear": "runs of the linear flow",
        "diamond": "runs of the diamond",
        "fanouts": "runs of 1 → 100 → 1",
        "items": "items of the map",
        "large": "items of the large map",
        "doubling": "items of the smallest of four maps",
        "settled": "pieces to settle as a set and one by one",
    },
    notes=notes,
)


def main(arguments: list[str]) -> int:
    return run(BENCHMARK, arguments)
