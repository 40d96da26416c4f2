"""One worker under full load for a long time: does it get slower, and does an old transaction hold it up?"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench import Bench, MeasureFailed, complaints
from benchmarks.engines.probe import read_hits
from benchmarks.tasks.engines.adapter import DRY
from benchmarks.tasks.measures import GLANCE, Numbers
from benchmarks.tasks.sizes import Sizes

AHEAD = 20_000  # jobs that wait in the queue at any time
START_WITHIN = 30.0  # seconds
STAND_STILL = 30.0  # seconds without a job, after which we give up
SLICES = 10
TELL_EVERY = 15.0
LONGEST_SOAK = 900.0


def soak(bench: Bench, rows: int) -> Numbers:
    """Jobs per second in each tenth of so many rows, and the share of dead rows at the end."""
    with bench.fresh_database() as database, bench.probes() as probes:
        with _full_load(bench, probes, database):
            rates = _rates_of_slices(bench, probes, rows // SLICES)
        # By now the workers' sessions have ended, and with that have reported what they did to the table.
        dead_share = bench.postgres.dead_share(database, bench.contender.engine.hot_table or "")
        ran_dry = _times_dry(probes)
    return {
        "soak, first slice": rates[0],
        "soak, slowest slice": min(rates),
        "soak, last slice": rates[-1],
        "soak, dead share": dead_share,
        "soak, ran dry": ran_dry,
        **{f"soak, slice {number} of {SLICES}": rate for number, rate in enumerate(rates, start=1)},
    }


def under_load(bench: Bench, sizes: Sizes, *, is_held: bool) -> float:
    """Jobs per second under full load that has gone on for a minute: with a transaction as old, if one `is_held`."""
    hold, window = sizes.hold_seconds, sizes.window_seconds
    with bench.fresh_database() as database, bench.probes() as probes:
        transaction = bench.postgres.old_transaction(database) if is_held else contextlib.nullcontext()
        with transaction, _full_load(bench, probes, database):
            began = time.monotonic()
            while (left := began + hold - time.monotonic()) > 0:
                time.sleep(min(left, TELL_EVERY))
                bench.say(f"{'with' if is_held else 'without'} an old transaction: {read_hits(probes).calls:,} jobs")
            before, since = read_hits(probes).calls, time.monotonic()
            time.sleep(window)
            rate = (read_hits(probes).calls - before) / (time.monotonic() - since)
    if rate == 0:
        raise MeasureFailed(f"no job was run within {window:.0f} s")
    return rate


@contextlib.contextmanager
def _full_load(bench: Bench, probes: Path, database: str) -> Iterator[None]:
    """One worker, and a producer that does not let its queue run dry; begins with the first job."""
    bench.call(probes, database, "bulk", AHEAD)
    with bench.postgres.connect(database) as connection:
        connection.execute("ANALYZE")
    bench.postgres.checkpoint()
    with bench.callers(probes, database, 1, "feed", AHEAD, AHEAD), bench.workers(probes, database, 1):
        deadline = time.monotonic() + START_WITHIN
        while not read_hits(probes).calls:
            if time.monotonic() > deadline:
                raise MeasureFailed(f"no job was run within {START_WITHIN:.0f} s: {complaints(probes)}")
            time.sleep(GLANCE)
        yield


def _rates_of_slices(bench: Bench, probes: Path, size: int) -> list[float]:
    began, counted = read_hits(probes).first, 0
    deadline = time.monotonic() + LONGEST_SOAK
    rates = []
    for number in range(1, SLICES + 1):
        calls, now = _wait_for(probes, counted + size, deadline)
        rates.append((calls - counted) / (now - began))
        counted, began = calls, now
        bench.say(f"soak: slice {number} of {SLICES}, {rates[-1]:,.0f} jobs/s")
    return rates


def _wait_for(probes: Path, count: int, deadline: float) -> tuple[int, float]:
    """Wait until so many jobs have been run; return how many they were, and when."""
    last, moved = 0, time.monotonic()
    while (calls := read_hits(probes).calls) < count:
        if calls > last:
            last, moved = calls, time.monotonic()
        if time.monotonic() > min(deadline, moved + STAND_STILL):
            raise MeasureFailed(
                f"only {calls} jobs were run: {complaints(probes)}, and the producer: {complaints(probes, 'caller')}"
            )
        time.sleep(GLANCE)
    return calls, time.time()


def _times_dry(probes: Path) -> int:
    """How often the producer found the queue empty; then it was the producer that was measured."""
    path = probes / DRY
    return path.stat().st_size if path.exists() else 0
