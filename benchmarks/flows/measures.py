"""How fast flows are, what they cost, and how long claims take meanwhile: each in a fresh database."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.bench import Bench, MeasureFailed, complaints
from benchmarks.contenders import OURS
from benchmarks.engines.probe import Hits, read_hits
from benchmarks.flows.shapes import Shape
from benchmarks.flows.statements import statements_in
from benchmarks.observed import peak_memory, quantile, read_from
from benchmarks.run import Numbers

FINISHED_WITHIN = 600.0  # seconds
STAND_STILL = 30.0  # seconds without a step, after which we give up
GLANCE = 0.005
BATCH_SIZES = (1, 10, 100, 500)


@dataclass(frozen=True, slots=True)
class Load:
    """So many runs of a flow, each with so many items."""

    shape: Shape
    flows: int
    items: int

    @property
    def steps(self) -> int:
        return self.flows * self.shape.steps(self.items)

    def calls(self, bench: Bench) -> int:
        """How often handlers count themselves: the function of a reduce does not."""
        return self.steps - (self.flows if bench.contender.options.get("handlers") == "reduce" else 0)


def work_off(bench: Bench, load: Load, processes: int) -> Numbers:
    """Steps and flows per second, from the first handler's start until the engine's own tables show all completed."""
    title = f"{load.shape.title}, {processes} process{'es' if processes > 1 else ''}"
    with _started(bench, load) as (database, probes, connection):
        bench.postgres.checkpoint()
        with bench.workers(probes, database, processes) as workers:
            seconds = _seconds_until_completed(bench, load, probes, connection)
            found = {title: load.steps / seconds, f"{title}: flows/s": load.flows / seconds}
            found |= _memory_of(workers, f"{title}: MB")
        if bench.contender.engine.name == OURS:
            _refuse_wrong_count(bench, load, probes)
            found[f"{title}: deadlocks"] = bench.postgres.deadlocks_in(database)
    return found


def cost(bench: Bench, load: Load) -> Numbers:
    """WAL bytes and statements per step, of the workers, without a checkpoint in between."""
    title = load.shape.title
    with _started(bench, load) as (database, probes, connection):
        bench.postgres.log_durations_of(database)
        logged, written = bench.postgres.log.stat().st_size, bench.postgres.wal_position()
        with bench.workers(probes, database, 1):
            _seconds_until_completed(bench, load, probes, connection)
        wal = bench.postgres.wal_position() - written
        statements = list(statements_in(_log_from(bench, logged)))
    return {
        f"{title}: WAL bytes/step": wal / load.steps,
        f"{title}: statements/step": len(statements) / load.steps,
    }


def claims(bench: Bench, load: Load) -> Numbers:
    """How long the claims took on the server, in milliseconds, while flows were worked off."""
    with _started(bench, load) as (database, probes, connection):
        bench.postgres.log_durations_of(database)
        logged = bench.postgres.log.stat().st_size
        with bench.workers(probes, database, 1):
            _seconds_until_completed(bench, load, probes, connection)
        statements = statements_in(_log_from(bench, logged))
        taken = sorted(each.milliseconds for each in statements if "cb_claim_" in each.text)
    if not taken:
        raise MeasureFailed("the server's log has no claims")
    return {
        "claims": len(taken),
        "claim p50, ms": quantile(taken, 0.5),
        "claim p99, ms": quantile(taken, 0.99),
        "longest claim, ms": taken[-1],
    }


def batch(bench: Bench, kind: str) -> Numbers:
    """What settling one batch of each size takes: statements that write, and calls of our SQL functions."""
    found = {}
    for size in BATCH_SIZES:
        with bench.fresh_database() as database, bench.probes() as probes:
            answer = bench.call(probes, database, "batch", kind, size)
        found[f"{kind}: writes, batch of {size}"] = float(answer["writes"])
        found[f"{kind}: calls, batch of {size}"] = float(answer["calls"])
    return found


def settle(bench: Bench, kind: str, count: int, how: str) -> Numbers:
    """Completions per second with our SQL alone: a batch in one call, or one call for each row, in one statement."""
    with bench.fresh_database() as database, bench.probes() as probes:
        answer = bench.call(probes, database, "settle", kind, count, how)
    return {f"{kind}: settled {how}": answer["settled"] / answer["seconds"]}


@contextmanager
def _started(bench: Bench, load: Load) -> Iterator[tuple[str, Path, psycopg.Connection]]:
    """A database in which the runs have been started, and nobody works yet."""
    with (
        bench.fresh_database() as database,
        bench.probes() as probes,
        bench.postgres.connect(database) as connection,
    ):
        bench.call(probes, database, "start", load.shape.name, load.flows, load.items)
        connection.execute("ANALYZE")
        yield database, probes, connection


def _seconds_until_completed(bench: Bench, load: Load, probes: Path, connection: psycopg.Connection) -> float:
    deadline = time.monotonic() + FINISHED_WITHIN
    hits = _wait_for_handlers(probes, load.calls(bench), deadline)
    deadline = min(deadline, time.monotonic() + STAND_STILL)
    while (left := connection.execute(bench.contender.engine.unfinished or "").fetchone()) != (0,):
        if time.monotonic() > deadline:
            raise MeasureFailed(f"handlers ran, but {left} runs were never completed: {complaints(probes)}")
        time.sleep(GLANCE)
    return time.time() - hits.first


def _wait_for_handlers(probes: Path, calls: int, deadline: float) -> Hits:
    before, moved = 0, time.monotonic()
    while (hits := read_hits(probes)).calls < calls:
        if hits.calls > before:
            before, moved = hits.calls, time.monotonic()
        if time.monotonic() > min(deadline, moved + STAND_STILL):
            raise MeasureFailed(f"only {hits.calls} of {calls} steps were run: {complaints(probes)}")
        time.sleep(GLANCE)
    return hits


def _refuse_wrong_count(bench: Bench, load: Load, probes: Path) -> None:
    """Nobody has died, so every handler has to have been called exactly once."""
    if (calls := read_hits(probes).calls) != load.calls(bench):
        raise MeasureFailed(f"handlers were called {calls} times, and not {load.calls(bench)} times")


def _memory_of(workers: Sequence[subprocess.Popen[bytes]], name: str) -> Numbers:
    """The largest of the worker processes at its largest."""
    found = [megabytes for worker in workers if (megabytes := peak_memory(worker.pid)) is not None]
    return {name: max(found)} if found else {}


def _log_from(bench: Bench, beginning: int) -> str:
    return read_from(bench.postgres.log, beginning).decode(errors="replace")
