"""The command line that all benchmarks have: which contenders, how many rounds, how much of what."""

from __future__ import annotations

import argparse
import contextlib
import sys
from dataclasses import replace
from typing import Any

from benchmarks.contenders import chosen, names_of
from benchmarks.run import Benchmark, Run, prepare_home
from benchmarks.servers import Postgres, redis_server


def run(benchmark: Benchmark, arguments: list[str]) -> int:
    """Run what the arguments ask for; return the exit code."""
    options = parse(benchmark, arguments)
    try:
        contenders = chosen(benchmark.contenders, options.only)
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    home = prepare_home()
    needs_redis = any(contender.engine.needs_redis for contender in contenders)
    with redis_server(home / "redis") if needs_redis else contextlib.nullcontext() as redis:
        running = Run(benchmark, options, sizes_of(benchmark, options), Postgres(home), redis)
        running.prepare(contenders)
        try:
            running.measure()
        finally:
            running.report()
    return 0 if running.samples else 1


def parse(benchmark: Benchmark, arguments: list[str]) -> argparse.Namespace:
    engines, kinds = ", ".join(names_of(benchmark.contenders)), list(benchmark.kinds)
    parser = argparse.ArgumentParser(
        prog=f"bootstrap.py bench {benchmark.name}",
        description=f"Measure {benchmark.name} against other engines on one PostgreSQL, in interleaved rounds.",
    )
    parser.add_argument("--only", type=words, metavar="A,B", help=f"only these engines: {engines}")
    parser.add_argument("--measure", type=words, default=kinds, metavar="A,B", help=f"of {', '.join(kinds)}")
    parser.add_argument("--quick", action="store_true", help="everything small: shows that it runs, measures nothing")
    for name, what in benchmark.own_sizes.items():
        default = f"{getattr(benchmark.goals_are_about, name):,}".replace(",", " ")
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=positive, metavar="N", help=f"{what} (default: {default})")
    options = parser.parse_args(arguments)
    if unknown := [kind for kind in options.measure if kind not in kinds]:
        parser.error(f"no measure {unknown[0]!r}: there are {', '.join(kinds)}")
    return options


def sizes_of(benchmark: Benchmark, options: argparse.Namespace) -> Any:
    """The sizes asked for: each by itself, or all small."""
    asked = {name: getattr(options, name) for name in benchmark.own_sizes if getattr(options, name) is not None}
    return replace(benchmark.quick if options.quick else benchmark.goals_are_about, **asked)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
