"""The command line of `bench tasks`: which contenders, how many rounds; shows the progress and keeps the results."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from benchmarks.tasks import machine, summary
from benchmarks.tasks.contenders import ENGINES, Contender, chosen
from benchmarks.tasks.environments import CannotInstall, python_of, versions_of
from benchmarks.tasks.measures import CHECKOUT, Bench, MeasureFailed
from benchmarks.tasks.servers import Postgres, redis_server
from benchmarks.tasks.summary import Sample

HOME = CHECKOUT / ".catbird-bench"
RESULTS = CHECKOUT / "benchmarks" / "results"
KINDS = ("drain", "enqueue", "pickup", "idle")
FEWEST_JOBS = 500


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    try:
        contenders = chosen(options.only)
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    HOME.mkdir(exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")
    with redis_server(HOME / "redis") as redis:
        run = Run(options, Postgres(HOME), redis)
        run.prepare(contenders)
        try:
            run.measure()
        finally:
            run.report()
    return 0 if run.samples else 1


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bootstrap.py bench tasks",
        description="Measure tasks against other engines on one PostgreSQL, in interleaved rounds.",
    )
    parser.add_argument(
        "--rounds", type=positive, default=3, metavar="N", help="rounds to take medians of (default: 3)"
    )
    parser.add_argument("--jobs", type=positive, default=40_000, metavar="N", help="jobs per drain (default: 40000)")
    parser.add_argument("--only", type=words, metavar="A,B", help=f"only these engines: {', '.join(ENGINES)}")
    parser.add_argument("--measure", type=words, default=list(KINDS), metavar="A,B", help=f"of {', '.join(KINDS)}")
    options = parser.parse_args(arguments)
    if unknown := [kind for kind in options.measure if kind not in KINDS]:
        parser.error(f"no measure {unknown[0]!r}: there are {', '.join(KINDS)}")
    return options


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


@dataclass
class Run:
    """One run of the benchmark: what took part, what was measured, what went wrong."""

    options: argparse.Namespace
    postgres: Postgres
    redis: str | None
    benches: list[Bench] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def prepare(self, contenders: list[Contender]) -> None:
        """See to the environment and the tables of each; who cannot take part is reported."""
        prepared: set[str] = set()
        for contender in contenders:
            engine = contender.engine
            if engine.name in self.problems:
                continue
            self.say(f"preparing {contender.name}")
            try:
                bench = self._bench_of(contender)
                if engine.name not in prepared:
                    bench.prepare()
                    prepared.add(engine.name)
            except (CannotInstall, MeasureFailed) as error:
                self.problems[engine.name] = str(error)
                self.say(f"{engine.name} does not take part: {error}")
                continue
            self.benches.append(bench)

    def _bench_of(self, contender: Contender) -> Bench:
        if contender.engine.needs_redis and self.redis is None:
            raise CannotInstall("there is no redis-server here")
        python = python_of(contender.engine, HOME / "envs")
        self.versions[contender.engine.name] = versions_of(contender.engine, python)
        return Bench(contender, python, self.postgres, self.redis)

    def measure(self) -> None:
        """Round by round, everyone in turn, so that a busy moment of the machine does not hit only one."""
        for round_number in range(1, self.options.rounds + 1):
            for bench in self.benches:
                for what, measure in self._measures_of(bench):
                    self._take(round_number, bench, what, measure)

    def _measures_of(self, bench: Bench) -> Iterator[tuple[str, Callable[[], dict[str, float]]]]:
        """What to measure of a contender: a name, and a call that gives values by the name of their measure."""
        jobs = max(FEWEST_JOBS, self.options.jobs // bench.contender.engine.slowness)
        if "drain" in self.options.measure:
            yield "drain with 1 process", lambda: {"drain, 1 process": bench.drain(jobs, 1)["rate"]}
            yield "drain with 2 processes", lambda: {"drain, 2 processes": bench.drain(jobs, 2)["rate"]}
        if not bench.contender.is_main:
            return
        if "enqueue" in self.options.measure:
            yield "enqueue", lambda: {f"{name} enqueue": found["rate"] for name, found in bench.enqueue(jobs).items()}
        is_raw = bench.contender.engine.module == "raw_limit"  # it neither sleeps nor is woken
        if "pickup" in self.options.measure and not is_raw:
            yield "pick-up", lambda: {f"pick-up {name}, ms": v for name, v in bench.pickup().items() if name != "lost"}
        if "idle" in self.options.measure and not is_raw and not bench.contender.engine.needs_redis:
            yield "idle", lambda: {"idle statements/s": bench.idle()["statements"]}

    def _take(self, round_number: int, bench: Bench, what: str, measure: Callable[[], dict[str, float]]) -> None:
        name, engine = bench.contender.name, bench.contender.engine.name
        try:
            values = measure()
        except MeasureFailed as error:
            self.problems[f"{name}: {what}"] = str(error)
            self.say(f"round {round_number}/{self.options.rounds} · {name} · {what} failed: {error}")
            return
        load = machine.load()
        for key, value in values.items():
            sample = Sample(round=round_number, contender=name, engine=engine, measure=key, value=value, load=load)
            self.samples.append(sample)
        shown = ", ".join(f"{key} {value:,.2f}" for key, value in values.items())
        self.say(f"round {round_number}/{self.options.rounds} · {name} · {shown}")

    def report(self) -> None:
        """Print the table and write everything to a file."""
        print(f"\n{summary.table(self.samples)}")
        for who, why in self.problems.items():
            print(f"not measured · {who}: {why}")
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"tasks-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
        path.write_text(json.dumps(self._as_json(), indent=1, ensure_ascii=False) + "\n")
        print(f"written to {path.relative_to(CHECKOUT)}")

    def _as_json(self) -> dict[str, Any]:
        return {
            "parameters": {key: getattr(self.options, key) for key in ("rounds", "jobs", "only", "measure")},
            "machine": machine.describe(),
            "postgresql": {"version": self.postgres.version(), **self.postgres.settings()},
            "versions": self.versions,
            "problems": self.problems,
            **summary.as_json(self.samples),
        }

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.started:5.0f} s] {text}", flush=True)
