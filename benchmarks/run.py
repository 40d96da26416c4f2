"""A run of a benchmark: prepares the contenders, measures them in turn, shows the progress and keeps the results."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import goals, machine, summary
from benchmarks.bench import CHECKOUT, Bench, MeasureFailed
from benchmarks.contenders import Contender
from benchmarks.environments import CannotInstall, python_of, versions_of
from benchmarks.goals import Goal
from benchmarks.remarks import remarks
from benchmarks.servers import Postgres
from benchmarks.summary import Sample, Tables

HOME = CHECKOUT / ".catbird-bench"
RESULTS = CHECKOUT / "benchmarks" / "results"

Numbers = dict[str, float]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to measure: what to call it, and the call that gives values by the name of their measure."""

    name: str
    take: Callable[[], Numbers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """What makes one benchmark different from another. Its sizes are a dataclass, with the number of rounds in it."""

    name: str
    contenders: Sequence[Contender]
    kinds: Sequence[str]
    steps_of: Callable[[Bench, list[str], Any, int], Iterator[Step]]
    """What to measure of a contender, of these kinds, with these sizes, in this round."""
    tables: Tables
    goals: Sequence[Goal]
    goals_are_about: Any
    quick: Any
    own_sizes: Mapping[str, str]
    """The sizes that can be given by themselves, and what they are."""
    notes: Callable[[Sequence[Contender], Any], Iterator[str]] = lambda _contenders, _sizes: iter(())
    """What else is to be said of a run with these contenders and sizes."""


def prepare_home() -> Path:
    """Where the server and the environments are kept."""
    HOME.mkdir(exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")
    return HOME


@dataclass
class Run:
    """One run: what took part, what was measured, what went wrong."""

    benchmark: Benchmark
    options: argparse.Namespace
    sizes: Any
    postgres: Postgres
    redis: str | None = None
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
                if bench.template not in prepared:
                    bench.prepare()
                    prepared.add(bench.template)
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
                for step in self.benchmark.steps_of(bench, self.options.measure, self.sizes, round_number):
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
        load, known = machine.load(), summary.measures_in(self.benchmark.tables)
        for key, value in values.items():
            sample = Sample(round=round_number, contender=name, engine=engine, measure=key, value=value, load=load)
            self.samples.append(sample)
        shown = ", ".join(f"{key} {value:,.2f}" for key, value in values.items() if key in known)
        self.say(f"{where} · {shown}")

    def report(self) -> None:
        """Print the tables and write everything to a file."""
        benchmark = self.benchmark
        smaller = list(remarks(self.sizes, benchmark.goals_are_about))
        print(f"\n{summary.table(self.samples, benchmark.tables)}\n")
        print(f"{goals.table(self.samples, benchmark.goals, benchmark.tables, smaller)}\n")
        for note in self._notes():
            print(f"note · {note}")
        for who, why in self.problems.items():
            print(f"not measured · {who}: {why}")
        # What only shows that it runs is not kept beside what was measured.
        directory = HOME if self.options.quick else RESULTS
        directory.mkdir(exist_ok=True)
        path = directory / f"{benchmark.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
        path.write_text(json.dumps(self._as_json(), indent=1, ensure_ascii=False) + "\n")
        print(f"written to {path.relative_to(CHECKOUT)}")

    def _as_json(self) -> dict[str, Any]:
        return {
            "parameters": {"only": self.options.only, "measure": self.options.measure, **asdict(self.sizes)},
            "machine": machine.describe(),
            "postgresql": {"version": self.postgres.version(), **self.postgres.settings()},
            "versions": self.versions,
            "problems": self.problems,
            "notes": self._notes(),
            **summary.as_json(self.samples, self.benchmark.tables),
            "goals": goals.as_json(self.samples, self.benchmark.goals, self.benchmark.tables),
        }

    def _notes(self) -> list[str]:
        return list(self.benchmark.notes([bench.contender for bench in self.benches], self.sizes))

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.started:5.0f} s] {text}", flush=True)
