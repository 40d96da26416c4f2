"""`bench tasks`: what makes it different from other benchmarks."""

from __future__ import annotations

from benchmarks.command import run
from benchmarks.run import Benchmark
from benchmarks.tasks.contenders import CONTENDERS
from benchmarks.tasks.goals import GOALS
from benchmarks.tasks.plan import KINDS, steps_of
from benchmarks.tasks.sizes import GOALS_ARE_ABOUT, QUICK
from benchmarks.tasks.tables import TABLES

BENCHMARK = Benchmark(
    name="tasks",
    contenders=CONTENDERS,
    kinds=list(KINDS),
    steps_of=steps_of,
    tables=TABLES,
    goals=GOALS,
    goals_are_about=GOALS_ARE_ABOUT,
    quick=QUICK,
    own_sizes={
        "rounds": "rounds to take medians of",
        "jobs": "jobs per drain",
        "finished": "finished rows beside a drain",
        "postponed": "jobs for tomorrow beside a drain",
        "soak": "rows of the soak",
    },
)


def main(arguments: list[str]) -> int:
    return run(BENCHMARK, arguments)
