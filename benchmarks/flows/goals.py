"""The goals for flows by their numbers: G6, the part of G7 that can be counted, G15, and those of maps."""

from __future__ import annotations

from benchmarks.flows.measures import BATCH_SIZES
from benchmarks.flows.plan import DOUBLINGS, HOW, PIECES
from benchmarks.flows.shapes import DIAMOND, FANOUT, LARGE_MAP, LINEAR, MAP
from benchmarks.goals import Goal

MAPS = "maps"
SMALLEST, *_, LARGEST = DOUBLINGS

GOALS = [
    Goal(id="G6", measure=f"{LINEAR.title}, 1 process", over="dbos", at_least=20),
    Goal(id="G6", measure=f"{LINEAR.title}, 1 process", over="absurd", at_least=6),
    Goal(id="G6", measure=f"{FANOUT.title}, 1 process", over="dbos", among="queued children", at_least=50),
    Goal(id="G6", measure=f"{FANOUT.title}, 1 process", over="absurd", among="child tasks", at_least=20),
    *[
        Goal(
            id="G7",
            measure=f"{kind}: writes, batch of {size}",
            over_measure=f"{kind}: writes, batch of {BATCH_SIZES[0]}",
            at_most=1,
        )
        for kind in PIECES
        for size in BATCH_SIZES[1:]
    ],
    *[
        Goal(id="G15", measure=f"{shape.title}, 2 processes: deadlocks", at_most=0)
        for shape in (LINEAR, DIAMOND, FANOUT, MAP, LARGE_MAP)
    ],
    Goal(id=MAPS, measure=f"{LARGE_MAP.title}, 1 process: MB", at_most=300),
    Goal(id=MAPS, measure=f"{LARGE_MAP.title}, 2 processes: MB", at_most=300),
    Goal(id=MAPS, measure="claim p99, ms", at_most=50),
    # The time per item must not grow; a fifth is what two cores with other users cannot tell from nothing.
    Goal(id=MAPS, measure=LARGEST, over_measure=SMALLEST, at_least=0.8),
    # No goal has been set; it has to be better than a loop, or the set-based form is not worth its trouble.
    *[
        Goal(id="sets", measure=f"{kind}: settled {HOW[0]}", over_measure=f"{kind}: settled {HOW[1]}", at_least=1)
        for kind in PIECES
    ],
]
