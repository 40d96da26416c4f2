"""`bench profile`: drain a queue with our worker, and show where its CPU time goes; to learn from, not to compare."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.bench import Bench, MeasureFailed
from benchmarks.command import positive
from benchmarks.contenders import Contender
from benchmarks.run import prepare_home
from benchmarks.servers import Postgres
from benchmarks.tasks.contenders import ADAPTERS, CATBIRD

PROFILED = replace(CATBIRD, module=f"{ADAPTERS}.profiled_worker")
TASKS = ("noop", "async_noop", "typed_noop")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="bootstrap.py bench profile", description="Show where a worker's CPU time goes during a drain."
    )
    parser.add_argument("--jobs", type=positive, default=100_000, metavar="N", help="jobs to drain (default: 100 000)")
    parser.add_argument("--task", choices=TASKS, default=TASKS[0], help="which task (default: %(default)s)")
    parser.add_argument("--top", type=positive, default=25, metavar="N", help="functions to show (default: 25)")
    options = parser.parse_args(arguments)
    try:
        answer = profile(options.jobs, options.task)
    except MeasureFailed as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(f"CPU seconds of one worker process, {options.jobs} jobs of {options.task}, profiler included")
    whole = sum(answer["threads"].values())
    for title, found in (("by thread", "threads"), ("in the function itself", "own"), ("with what it calls", "total")):
        print(f"\n{title}\n{listed(answer[found], whole, options.top)}")
    return 0


def profile(jobs: int, task: str) -> dict[str, dict[str, float]]:
    """Drain so many jobs; CPU seconds by thread, by function, and by function with what it calls."""
    contender = Contender(name="profiled", engine=PROFILED, options={"task": task})
    bench = Bench(contender, Path(sys.executable), Postgres(prepare_home()), None, print)
    bench.prepare()
    with bench.fresh_database() as database, bench.probes() as probes:
        bench.call(probes, database, "bulk", jobs)
        return bench.call(probes, database, "worker")


def listed(seconds: Mapping[str, float], whole: float, top: int) -> str:
    """The largest first, each with its share of the whole."""
    largest = sorted(seconds.items(), key=lambda item: item[1], reverse=True)[:top]
    return "\n".join(f"{spent:8.2f} s {100 * spent / whole:5.1f} %  {name}" for name, spent in largest)
