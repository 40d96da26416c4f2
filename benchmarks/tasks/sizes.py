"""How much of everything: the sizes that the goals speak of, and small ones that only show that it all runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a run is made of. The defaults are what the goals are about."""

    rounds: int = 3
    jobs: int = 40_000
    """Jobs per drain and per bulk enqueue."""
    singles: int = 500
    pickups: int = 50
    idle_seconds: float = 10.0
    finished: int = 5_000_000
    """Finished rows beside a drain."""
    postponed: int = 100_000
    """Jobs for tomorrow beside a drain."""
    soak: int = 1_000_000
    hold_seconds: float = 60.0
    """How old the transaction is when the measuring begins."""
    window_seconds: float = 20.0
    """How long the measuring beside it takes."""
    produce_seconds: float = 10.0


GOALS_ARE_ABOUT = Sizes()
QUICK = Sizes(
    rounds=1,
    jobs=2_000,
    singles=50,
    pickups=10,
    idle_seconds=2.0,
    finished=20_000,
    postponed=1_000,
    soak=20_000,
    hold_seconds=2.0,
    window_seconds=2.0,
    produce_seconds=2.0,
)
