"""Rounds of scenarios: played in turn, counted, and summed up."""

from __future__ import annotations

import itertools
import random
import statistics
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.chaos.cluster import Cluster
from tests.chaos.rounds import Round
from tests.chaos.scenario import Broken, Scenario, Skipped

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one round."""

    scenario: str
    seed: int
    seconds: float
    problem: str = ""
    skipped: str = ""
    recoveries: list[float] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)


def play(cluster: Cluster, scenario: Scenario, *, seed: int, is_short: bool) -> Result:
    """Play one round of a scenario. Never raises for what goes wrong in it."""
    round_ = Round(cluster, scenario, number=next(_numbers), seed=seed, is_short=is_short)
    began = time.monotonic()
    problem = skipped = ""
    try:
        round_.play()
    except Skipped as reason:
        skipped = str(reason)
    except Broken as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 - one broken round must not end the campaign
        problem = f"the round could not be played: {type(error).__name__}: {error}"
    seconds = round(time.monotonic() - began, 1)
    return Result(scenario.name, seed, seconds, problem, skipped, round_.recoveries, dict(round_.seen))


def rounds(
    cluster: Cluster, scenarios: Sequence[Scenario], *, count: int, seed: int, jobs: int, is_short: bool
) -> Iterator[Result]:
    """Play so many rounds of each, in another order every time; up to `jobs` of them at the same time."""
    order = random.Random(seed)
    for number in range(count):
        shuffled = order.sample(scenarios, len(scenarios))
        turns = [(one, zlib.crc32(f"{seed}/{number}/{one.name}".encode())) for one in shuffled]
        with ThreadPoolExecutor(jobs) as pool:
            waiting = [
                pool.submit(play, cluster, one, seed=own, is_short=is_short) for one, own in turns if not one.is_alone
            ]
            for finished in as_completed(waiting):
                yield finished.result()
        for one, own in turns:
            if one.is_alone:
                yield play(cluster, one, seed=own, is_short=is_short)


def summary(results: Sequence[Result]) -> str:
    """A table: scenario, rounds, failures, recovery times, what fired."""
    by_name: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda result: result.scenario):
        by_name.setdefault(result.scenario, []).append(result)
    width = max(len(name) for name in by_name)
    lines = [f"{'scenario':{width}}  rounds  failed  recovery min/median/max  what fired"]
    for name, own in by_name.items():
        failed = sum(bool(result.problem) for result in own)
        lines.append(f"{name:{width}}  {len(own):6}  {failed:6}  {_recovery(own):>23}  {_fired(own)}")
    return "\n".join(lines)


def _recovery(results: Sequence[Result]) -> str:
    times = [seconds for result in results for seconds in result.recoveries]
    return f"{min(times):.1f} / {statistics.median(times):.1f} / {max(times):.1f} s" if times else "-"


def _fired(results: Sequence[Result]) -> str:
    if reasons := {result.skipped for result in results if result.skipped}:
        return f"skipped: {'; '.join(sorted(reasons))}"
    total: Counter[str] = Counter()
    for result in results:
        total.update(result.seen)
    return ", ".join(f"{count}x {fault}" for fault, count in sorted(total.items()))


def as_json(results: Sequence[Result], *, seed: int, seconds: float) -> dict[str, Any]:
    return {"seed": seed, "seconds": round(seconds, 1), "rounds": [asdict(result) for result in results]}
