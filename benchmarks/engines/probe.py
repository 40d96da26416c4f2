"""What every handler calls: counts, and notes the first start; for pick-up latency, every start.

The counter lives in a small file mapped into memory, which the measuring process reads; a call costs 1 to 2 µs.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from pathlib import Path
from typing import NamedTuple

LAYOUT = struct.Struct("<qdd")  # calls, first start, last start
DIRECTORY = "BENCH_PROBES"


class Hits(NamedTuple):
    """How often handlers were called, in all worker processes, and when first and last."""

    calls: int
    first: float
    last: float


class Probe:
    """The probe of one process."""

    def __init__(self, directory: Path) -> None:
        self.pid = os.getpid()
        self._calls = 0
        self._first = time.time()
        path = directory / f"hits.{self.pid}"
        path.write_bytes(bytes(LAYOUT.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), LAYOUT.size)
        self._starts = (directory / f"starts.{self.pid}").open("a", buffering=1)

    def hit(self, number: int, times: int, now: float) -> None:
        self._calls += times
        LAYOUT.pack_into(self._shared, 0, self._calls, self._first, now)
        if number >= 0:
            self._starts.write(f"{number} {now:.6f}\n")


_lock = threading.Lock()
_probe: Probe | None = None


def hit(number: int, *, times: int = 1) -> None:
    """Count one start of a handler; `number` says which job it is, if that is of interest (not negative)."""
    global _probe
    now = time.time()
    with _lock:
        if _probe is None or _probe.pid != os.getpid():
            _probe = Probe(Path(os.environ[DIRECTORY]))
        _probe.hit(number, times, now)


def read_hits(directory: Path) -> Hits:
    """Add up the counters of all processes."""
    counts = [LAYOUT.unpack(path.read_bytes()) for path in directory.glob("hits.*") if path.stat().st_size]
    begun = [count for count in counts if count[1]]
    if not begun:
        return Hits(0, 0.0, 0.0)
    return Hits(sum(count[0] for count in begun), min(count[1] for count in begun), max(count[2] for count in begun))


def read_starts(directory: Path) -> dict[int, float]:
    """When each numbered job was started first."""
    starts: dict[int, float] = {}
    for path in directory.glob("starts.*"):
        for line in path.read_text().splitlines():
            number, moment = line.split()
            starts[int(number)] = min(float(moment), starts.get(int(number), float("inf")))
    return starts
