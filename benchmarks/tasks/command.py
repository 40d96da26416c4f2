"""The command line of `bench tasks`: which contenders, how many rounds; shows the progress and keeps the results."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.tasks import goals, machine, summary
from benchmarks.tasks.bench import CHECKOUT, Bench, MeasureFailed
from benchmarks.tasks.contenders import ENGINES, Contender, chosen
from benchmarks.tasks.environments import CannotInstall, python_of, versions_of
from benchmarks.tasks.plan import KINDS, Step, steps_of
from benchmarks.tasks.servers import Postgres, redis_server
from benchmarks.tasks.sizes import GOALS_ARE_ABOUT, QUICK, Sizes, remarks
from benchmarks.tasks.summary import Sample

HOME = CHECKOUT / ".catbird-bench"
RESULTS = CHECKOUT / "benchmarks" / "results"
OWN_SIZES = {
    "rounds": "rounds to take medians of",
    "jobs": "jobs per drain",
    "finished": "finished rows beside a drain",
    "postponed": "jobs for tomorrow beside a drain",
    "soak": "rows of the soak",
}


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    try:
        contenders = chosen(options.only)
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    home = prepare_home()
    with redis_server(home / "redis") as redis:
        run = Run(options, sizes_of(options), Postgres(home), redis)
        run.prepare(contenders)
        try:
            run.measure()
        finally:
            run.report()
    return 0 if run.samples else 1


def prepare_home() -> Path:
    """Where the server and the environments are kept."""
    HOME.mkdir(exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")
    return HOME


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bootstrap.py bench tasks",
        description="Measure tasks against other engines on one PostgreSQL, in interleaved rounds.",
    )
    parser.add_argument("--only", type=words, metavar="A,B", help=f"only these engines: {', '.join(ENGINES)}")
    parser.add_argument("--measure", type=words, default=list(KINDS), metavar="A,B", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--quick", action="store_true", help="everything small: shows that it runs, measures nothing")
    for name, what in OWN_SIZES.items():
        default = f"{getattr(GOALS_ARE_ABOUT, name):,}".replace(",", " ")
        parser.add_argument(f"--{name}", type=positive, metavar="N", help=f"{what} (default: {default})")
    options = parser.parse_args(arguments)
    if unknown := [kind for kind in options.measure if kind not in KINDS]:
        parser.error(f"no measure {unknown[0]!r}: there are {', '.join(KINDS)}")
    return options


def sizes_of(options: argparse.Namespace) -> Sizes:
    """The sizes asked for: each by itself, or all small."""
    asked = {name: getattr(options, name) for name in OWN_SIZES if getattr(options, name) is not None}
    return replace(QUICK if options.quick else GOALS_ARE_ABOUT, **asked)


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
    sizes: Sizes
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
        return Bench(contender, python, self.postgres, self.redis, self.say)

    def measure(self) -> None:
        """Round by round, everyone in turn, so that a busy moment of the machine does not hit only one."""
        for round_number in range(1, self.sizes.rounds + 1):
            for bench in self.benches:
                for step in steps_of(bench, self.options.measure, self.sizes, round_number):
                    self._take(round_number, bench, step)

    def _take(self, round_number: int, bench: Bench, step: Step) -> None:
        name, engine = bench.contender.name, bench.contender.engine.name
        where = f"round {round_number}/{self.sizes.rounds} · {name}"
        try:
            values = step.take()
        except (MeasureFailed, psycopg.Error) as error:
            self.problems[f"{name}: {step.name}"] = str(error)
            self.say(f"{where} · {step.name} failed: {error}")
            return
        load = machine.load()
        for key, value in values.items():
            sample = Sample(round=round_number, contender=name, engine=engine, measure=key, value=value, load=load)
            self.samples.append(sample)
        shown = ", ".join(f"{key} {value:,.2f}" for key, value in values.items() if key in summary.MEASURES)
        self.say(f"{where} · {shown}")

    def report(self) -> None:
        """Print the tables and write everything to a file."""
        print(f"\n{summary.table(self.samples)}\n\n{goals.table(self.samples, list(remarks(self.sizes)))}\n")
        for who, why in self.problems.items():
            print(f"not measured · {who}: {why}")
        # What only shows that it runs is not kept beside what was measured.
        directory = HOME if self.options.quick else RESULTS
        directory.mkdir(exist_ok=True)
        path = directory / f"tasks-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
        path.write_text(json.dumps(self._as_json(), indent=1, ensure_ascii=False) + "\n")
        print(f"written to {path.relative_to(CHECKOUT)}")

    def _as_json(self) -> dict[str, Any]:
        return {
            "parameters": {"only": self.options.only, "measure": self.options.measure, **asdict(self.sizes)},
            "machine": machine.describe(),
            "postgresql": {"version": self.postgres.version(), **self.postgres.settings()},
            "versions": self.versions,
            "problems": self.problems,
            **summary.as_json(self.samples),
            "goals": goals.as_json(self.samples),
        }

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.started:5.0f} s] {text}", flush=True)
