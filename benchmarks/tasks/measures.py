"""Drain, enqueue, documents, pick-up, idle: each in a fresh database, with worker processes of its own."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg

from benchmarks.bench import Bench, MeasureFailed, complaints
from benchmarks.engines.probe import Hits, read_hits, read_starts
from benchmarks.observed import cpu_seconds, quantile, read_from

DRAIN_WITHIN = 180.0  # seconds
GLANCE = 0.005

PICKUP_GAP = 0.12
SETTLE_IN = 4.0  # seconds that a worker gets to start and fall asleep

Numbers = dict[str, float]


def drain(bench: Bench, jobs: int, processes: int, *, template: str | None = None, postponed: int = 0) -> float:
    """Jobs per second, from the first handler's start until the engine's own table shows nothing unfinished.

    `template` is the database to begin with, `postponed` the number of jobs for tomorrow to put beside the others.
    """
    with (
        bench.fresh_database(template=template) as database,
        bench.probes() as probes,
        bench.postgres.connect(database) as connection,
    ):
        if postponed:
            connection.execute(bench.contender.engine.postpone, (postponed,))  # type: ignore[arg-type]
        bench.call(probes, database, "bulk", jobs)
        connection.execute("ANALYZE")
        bench.postgres.checkpoint()
        with bench.workers(probes, database, processes):
            return jobs / _seconds_until_drained(bench, probes, jobs, connection)


def enqueue(bench: Bench, jobs: int, singles: int) -> Numbers:
    """Jobs per second, one by one and in bulk, with no worker there."""
    with bench.fresh_database() as database, bench.probes() as probes:
        answers = {
            "single enqueue": bench.call(probes, database, "single", singles),
            "bulk enqueue": bench.call(probes, database, "bulk", jobs),
        }
    return {name: answer["jobs"] / answer["seconds"] for name, answer in answers.items()}


def documents(bench: Bench, count: int, size: int) -> float:
    """Documents of so many bytes per second, enqueued in bulk; making JSON of them counts."""
    with bench.fresh_database() as database, bench.probes() as probes:
        answer = bench.call(probes, database, "documents", count, size)
    return float(answer["jobs"] / answer["seconds"])


def pickup(bench: Bench, count: int) -> Numbers:
    """Milliseconds from the return of the enqueueing call to the handler's start, on an idle worker."""
    with bench.fresh_database() as database, bench.probes() as probes:
        with bench.workers(probes, database, 1):
            time.sleep(SETTLE_IN)
            committed = bench.call(probes, database, "pickup", count, PICKUP_GAP)["committed"]
            time.sleep(1)
        starts = read_starts(probes)
    lost = [number for number in range(len(committed)) if number not in starts]
    if lost:
        raise MeasureFailed(f"{len(lost)} of {count} jobs were not picked up")
    waits = sorted(1000 * max(0.0, starts[number] - then) for number, then in enumerate(committed))
    return {"pick-up p50, ms": quantile(waits, 0.5), "pick-up p99, ms": quantile(waits, 0.99)}


def idle(bench: Bench, seconds: float) -> Numbers:
    """Statements per second that a worker with nothing to do sends, and its share of a core."""
    with bench.fresh_database() as database, bench.probes() as probes:
        bench.postgres.log_statements_of(database)
        with bench.workers(probes, database, 1) as [worker]:
            time.sleep(SETTLE_IN + 2)
            beginning, used = bench.postgres.log.stat().st_size, cpu_seconds(worker.pid)
            time.sleep(seconds)
            logged, used_then = read_from(bench.postgres.log, beginning), cpu_seconds(worker.pid)
    statements = logged.count(b"LOG:  statement:") + logged.count(b"LOG:  execute ")
    found = {"idle statements/s": statements / seconds}
    if used is None or used_then is None:
        return found
    return found | {"idle CPU, %": 100 * (used_then - used) / seconds}


def _seconds_until_drained(bench: Bench, probes: Path, jobs: int, connection: psycopg.Connection) -> float:
    deadline = time.monotonic() + DRAIN_WITHIN
    hits = _wait_for_handlers(probes, jobs, deadline)
    unfinished = bench.contender.engine.unfinished
    if unfinished is None:
        return hits.last - hits.first
    while True:
        row = connection.execute(unfinished).fetchone()
        if row == (0,):
            return time.time() - hits.first
        if time.monotonic() > deadline:
            raise MeasureFailed(f"handlers ran, but {row} jobs were never completed")
        time.sleep(GLANCE)


def _wait_for_handlers(probes: Path, jobs: int, deadline: float) -> Hits:
    while (hits := read_hits(probes)).calls < jobs:
        if time.monotonic() > deadline:
            said = complaints(probes)
            raise MeasureFailed(f"{hits.calls} of {jobs} jobs were run within {DRAIN_WITHIN:.0f} s: {said}")
        time.sleep(GLANCE)
    return hits
