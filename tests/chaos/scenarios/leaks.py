"""Many runs through one worker: memory, files, threads and connections stay as they are."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import NamedTuple

from tests.chaos.processes import WorkerProcess
from tests.chaos.rounds import Round
from tests.chaos.scenario import Skipped, scenario

SHORT, LONG = 5_000, 100_000
CHUNK = {"echo": 900, "aecho": 900, "look_at_the_tables": 150, "alook_at_the_tables": 50}
INPUT = {"echo": "1", "aecho": "1", "look_at_the_tables": "null", "alook_at_the_tables": "null"}
REST = 0.3  # seconds: what async handlers open for their queries is closed by then
MORE_MEMORY = 24 * 1024  # kB


class Sample(NamedTuple):
    """What a worker uses."""

    memory: int
    files: int
    threads: int
    connections: int


@scenario("all of them ran")
def many_runs_through_one_worker_leave_no_leaks(round_: Round) -> None:
    if not Path("/proc/self/status").exists():
        raise Skipped("there is no /proc here to look into")
    worker = round_.start_worker()
    total = SHORT if round_.is_short else LONG
    samples: list[Sample] = []
    while len(round_.accepted) < total:
        runs = [run for task, count in CHUNK.items() for run in round_.run_many(task, count, INPUT[task])]
        round_.until_ended(runs)
        time.sleep(REST)
        samples.append(sample(round_, worker))
    round_.saw("all of them ran")

    refuse_growth(round_, samples)


def sample(round_: Round, worker: WorkerProcess) -> Sample:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{worker.pid}/status").read_text().splitlines())
    [(connections,)] = round_.query(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND usename = 'app'", [round_.database]
    )
    return Sample(
        memory=int(status["VmRSS"].split()[0]),
        files=len(list(Path(f"/proc/{worker.pid}/fd").iterdir())),
        threads=int(status["Threads"]),
        connections=connections,
    )


def refuse_growth(round_: Round, samples: list[Sample]) -> None:
    """Compare the last fifth with the second one: in the first, caches fill."""
    fifth = max(1, len(samples) // 5)
    early, late = samples[fifth : 2 * fifth] or samples[:1], samples[-fifth:]
    for name, allowed in (("memory", MORE_MEMORY), ("files", 2), ("threads", 2), ("connections", 2)):
        before = statistics.median(getattr(one, name) for one in early)
        after = statistics.median(getattr(one, name) for one in late)
        round_.seen[f"{name} {before:g} → {after:g}"] += 1
        round_.expect(after <= before + allowed, f"{name} went from {before:g} to {after:g}")
