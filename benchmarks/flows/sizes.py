"""How much of everything: the sizes that the goals speak of, and small ones that only show that it all runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a run is made of. The defaults are what the goals are about; slow engines get a part of it."""

    rounds: int = 3
    linear: int = 10_000
    """Runs of the linear flow."""
    diamond: int = 7_500
    fanouts: int = 300
    items: int = 10_000
    large: int = 100_000
    """Items of the large map."""
    doubling: int = 25_000
    """Items of the smallest of four maps, each twice as large as the one before."""
    settled: int = 10_000
    """Steps, and items, that are settled as a set and one by one."""


GOALS_ARE_ABOUT = Sizes()
QUICK = Sizes(rounds=1, linear=300, diamond=200, fanouts=10, items=500, large=2_000, doubling=500, settled=500)
