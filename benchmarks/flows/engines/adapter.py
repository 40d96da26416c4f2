"""The few commands that each engine answers, whatever it is:

    setup                     make the tables in an empty database
    worker                    work until terminated
    start SHAPE FLOWS ITEMS   start so many runs of a flow, each with so many items, the fastest documented way

The handlers of all steps count themselves, and give back the number that they are given, or how many they are given.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.engines.exchange import say

BATCH = 1000


@dataclass(frozen=True)
class Adapter:
    """An engine, in three calls."""

    setup: Callable[[], None]
    worker: Callable[[], None]
    start: Callable[[str, int, int], None]

    def main(self) -> None:
        match sys.argv[1:]:
            case ["setup"]:
                self.setup()
                say({})
            case ["worker"]:
                self.worker()
            case ["start", shape, flows, items]:
                self.start(shape, int(flows), int(items))
                say({})
            case command:
                sys.exit(f"no command {command!r}")


def batches(count: int) -> list[int]:
    """The sizes of the batches that make up so many runs."""
    return [min(BATCH, count - done) for done in range(0, count, BATCH)]
