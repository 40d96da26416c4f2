"""The tables that a run of the benchmark of flows prints."""

from __future__ import annotations

from benchmarks.flows.measures import BATCH_SIZES
from benchmarks.flows.plan import DOUBLINGS, HOW, PIECES
from benchmarks.flows.shapes import DIAMOND, FANOUT, LARGE_MAP, LINEAR, MAP
from benchmarks.summary import Tables, measures_in

ONE, TWO = "1 process", "2 processes"
STRAIGHT = [LINEAR.title, DIAMOND.title]
FANNING = [FANOUT.title, MAP.title, LARGE_MAP.title]

TABLES: Tables = [
    {f"{title}, {processes}": True for title in STRAIGHT for processes in (ONE, TWO)},
    {f"{title}, {processes}": True for title in FANNING for processes in (ONE, TWO)},
    {f"{title}, {processes}: flows/s": True for title in (*STRAIGHT, FANOUT.title) for processes in (ONE, TWO)},
    {f"{title}, {processes}: MB": None for title in (LINEAR.title, LARGE_MAP.title) for processes in (ONE, TWO)},
    {f"{title}, {TWO}: deadlocks": None for title in (*STRAIGHT, *FANNING)},
    dict.fromkeys(DOUBLINGS, True),
    {
        f"{title}: {what}": False
        for title in (LINEAR.title, FANOUT.title, MAP.title)
        for what in ("WAL bytes/step", "statements/step")
    },
    {"claims": None, "claim p50, ms": False, "claim p99, ms": False, "longest claim, ms": False},
    {f"{kind}: settled {how}": True for kind in PIECES for how in HOW},
    *[
        {f"{kind}: {what}, batch of {size}": None for size in BATCH_SIZES}
        for kind in PIECES
        for what in ("writes", "calls")
    ],
]
MEASURES = measures_in(TABLES)
