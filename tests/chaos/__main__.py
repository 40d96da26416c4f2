"""`python3 bootstrap.py chaos`, or `python -m tests.chaos` in the project's environment."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import django

from tests.chaos.scenario import Scenario, all_scenarios

BAR = 30


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.chaos.settings"
    os.environ.pop("DATABASE_URL", None)  # faults happen to a server of their own, never to somebody's
    django.setup()
    scenarios = chosen(options.only)
    if options.list:
        for scenario in scenarios:
            print(scenario.name)
        return 0
    if not scenarios:
        print(f"chaos: no scenario has {options.only!r} in its name; --list names them", file=sys.stderr)
        return 2
    return play_all(scenarios, options)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bootstrap.py chaos", description="Make faults happen, and check what must hold."
    )
    parser.add_argument(
        "--rounds", type=int, default=1, metavar="N", help="how often to play each scenario (default: 1)"
    )
    parser.add_argument("--only", default="", metavar="NAME,…", help="only scenarios whose name has one of these in it")
    parser.add_argument("--list", action="store_true", help="name the scenarios, and play none")
    parser.add_argument("--seed", type=int, default=None, metavar="S", help="make the same choices as another campaign")
    parser.add_argument("--short", action="store_true", help="as short as in CI")
    parser.add_argument("--jobs", type=int, default=3, metavar="N", help="rounds at the same time (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round's result to this file")
    return parser.parse_args(arguments)


def chosen(only: str) -> list[Scenario]:
    parts = [part.strip().replace("-", "_").replace(" ", "_") for part in only.split(",") if part.strip()]
    return [found for name, found in all_scenarios().items() if not parts or any(part in name for part in parts)]


def play_all(scenarios: list[Scenario], options: argparse.Namespace) -> int:
    from tests.chaos.campaign import as_json, rounds, summary
    from tests.chaos.cluster import private_cluster

    seed = random.randrange(10**6) if options.seed is None else options.seed
    began = time.monotonic()
    results = []
    total = options.rounds * len(scenarios)
    print(f"{len(scenarios)} scenarios, {options.rounds} rounds each, --seed {seed}", flush=True)
    with private_cluster() as cluster:
        try:
            how = {"count": options.rounds, "seed": seed, "jobs": options.jobs, "is_short": options.short}
            for result in rounds(cluster, scenarios, **how):
                results.append(result)
                show(len(results), total, result.scenario, sum(bool(one.problem) for one in results))
                if result.problem:
                    print(f"\nFAILED {result.scenario} after {result.seconds} s\n{result.problem}\n", flush=True)
        except KeyboardInterrupt:
            print("\nStopped.")
    print()
    if results:
        print(summary(results))
    if options.json:
        options.json.write_text(json.dumps(as_json(results, seed=seed, seconds=time.monotonic() - began), indent=1))
    failed = sum(bool(result.problem) for result in results)
    print(f"\n{len(results)} rounds in {time.monotonic() - began:.0f} s, {failed} failed.")
    return 1 if failed or len(results) < total else 0


def show(done: int, total: int, name: str, failed: int) -> None:
    """One line that is written over on a terminal, and a plain line elsewhere."""
    words = f"{done}/{total} {name}" + (f", {failed} failed" if failed else "")
    if sys.stdout.isatty():
        filled = BAR * done // total
        print(f"\r\x1b[K[{'#' * filled}{'.' * (BAR - filled)}] {words[:100]}", end="", flush=True)
    else:
        print(words, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
