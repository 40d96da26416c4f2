"""The tables that a run of the benchmark of tasks prints."""

from __future__ import annotations

from benchmarks.summary import Tables, measures_in

# The tables, each with its columns; whether more is better, or None where a ratio would say nothing.
TABLES: Tables = [
    {
        "drain, 1 process": True,
        "drain, 2 processes": True,
        "bulk enqueue": True,
        "single enqueue": True,
        "pick-up p50, ms": False,
        "pick-up p99, ms": False,
        "idle statements/s": False,
        "idle CPU, %": False,
    },
    {"bulk enqueue, 50 B": True, "bulk enqueue, 830 B": True},
    {
        "drain, nothing finished": True,
        "drain, finished rows": True,
        "drain, nothing for tomorrow": True,
        "drain, jobs for tomorrow": True,
    },
    {
        "soak, first slice": True,
        "soak, slowest slice": True,
        "soak, last slice": True,
        "soak, dead share": None,
        "soak, ran dry": None,
    },
    {"steady, no old transaction": True, "steady, old transaction": True},
    {
        "8 producers, no wake-ups": True,
        "8 producers, wake-ups": True,
        "8 producers alone, no wake-ups": True,
        "8 producers alone, wake-ups": True,
    },
]
MEASURES = measures_in(TABLES)
