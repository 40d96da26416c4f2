"""Drain, enqueue, pick-up, idle: each in a fresh database, with worker processes of its own, and bounded in time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.tasks.contenders import Contender
from benchmarks.tasks.engines.probe import DIRECTORY, read_hits, read_starts
from benchmarks.tasks.servers import Postgres

CHECKOUT = Path(__file__).resolve().parents[2]

DRAIN_WITHIN = 180.0  # seconds
CALL_WITHIN = 300.0
STOP_WITHIN = 5.0
GLANCE = 0.005

SINGLES = 500
PICKUPS = 50
PICKUP_GAP = 0.12
IDLE_SECONDS = 10.0
SETTLE_IN = 4.0  # seconds that a worker gets to start and fall asleep

Numbers = dict[str, float]


class MeasureFailed(Exception):
    """An engine did not do what was asked, and this is what it said."""


@dataclass(frozen=True, slots=True)
class Bench:
    """One contender, ready to be measured: its Python, and the servers."""

    contender: Contender
    python: Path
    postgres: Postgres
    redis: str | None

    def prepare(self) -> None:
        """Make the engine's tables once; every measurement begins with a copy."""
        self.postgres.create(self._template)
        with self._probes() as probes:
            self._call(probes, self._template, "setup")

    def drain(self, jobs: int, processes: int) -> Numbers:
        """Jobs per second, from the first handler's start until the engine's own table shows nothing unfinished."""
        with self._fresh_database() as database, self._probes() as probes:
            self._call(probes, database, "bulk", jobs)
            with self.postgres.connect(database) as connection:
                connection.execute("ANALYZE")
                self.postgres.checkpoint()
                with self._workers(probes, database, processes):
                    seconds = self._wait_until_drained(probes, jobs, connection)
        return {"rate": jobs / seconds, "jobs": jobs, "seconds": seconds}

    def enqueue(self, jobs: int) -> dict[str, Numbers]:
        """Jobs per second, one by one and in bulk, with no worker there."""
        with self._fresh_database() as database, self._probes() as probes:
            single = self._call(probes, database, "single", SINGLES)
            bulk = self._call(probes, database, "bulk", jobs)
        return {
            name: {"rate": answer["jobs"] / answer["seconds"], **answer}
            for name, answer in (("single", single), ("bulk", bulk))
        }

    def pickup(self) -> Numbers:
        """Milliseconds from the return of the enqueueing call to the handler's start, on an idle worker."""
        with self._fresh_database() as database, self._probes() as probes:
            with self._workers(probes, database, 1):
                time.sleep(SETTLE_IN)
                committed = self._call(probes, database, "pickup", PICKUPS, PICKUP_GAP)["committed"]
                time.sleep(1)
            starts = read_starts(probes)
        waits = sorted(
            1000 * max(0.0, starts[number] - then) for number, then in enumerate(committed) if number in starts
        )
        if not waits:
            raise MeasureFailed("no job was picked up")
        return {"p50": quantile(waits, 0.5), "p99": quantile(waits, 0.99), "lost": PICKUPS - len(waits)}

    def idle(self) -> Numbers:
        """Statements per second that a worker with nothing to do sends."""
        with self._fresh_database() as database, self._probes() as probes:
            self.postgres.log_statements_of(database)
            with self._workers(probes, database, 1):
                time.sleep(SETTLE_IN + 2)
                beginning = self.postgres.log.stat().st_size
                time.sleep(IDLE_SECONDS)
                said = read_from(self.postgres.log, beginning)
        return {"statements": (said.count(b"LOG:  statement:") + said.count(b"LOG:  execute ")) / IDLE_SECONDS}

    # What the measurements are made of

    @property
    def _template(self) -> str:
        return f"bench_{self.contender.engine.module}"

    @contextlib.contextmanager
    def _fresh_database(self) -> Iterator[str]:
        database = f"{self._template}_run"
        self.postgres.create(database, template=self._template)
        if self.contender.engine.needs_redis:
            with self._probes() as probes:
                self._call(probes, database, "setup")
        try:
            yield database
        finally:
            self.postgres.drop(database)

    @contextlib.contextmanager
    def _probes(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="catbird-bench-") as directory:
            yield Path(directory)

    def _call(self, probes: Path, database: str, *words: object) -> dict[str, Any]:
        """Ask the adapter for something, and give its answer."""
        command = [str(self.python), "-m", self._module, *map(str, words)]
        environment = self._environment(probes, database)
        try:
            done = subprocess.run(
                command, env=environment, cwd=CHECKOUT, capture_output=True, text=True, timeout=CALL_WITHIN
            )
        except subprocess.TimeoutExpired as error:
            raise MeasureFailed(f"{words[0]} took longer than {CALL_WITHIN:.0f} s") from error
        for line in done.stdout.splitlines():
            if line.startswith("ANSWER "):
                return dict(json.loads(line.removeprefix("ANSWER ")))
        raise MeasureFailed(f"{words[0]}: {last_line(done.stderr)}")

    @contextlib.contextmanager
    def _workers(self, probes: Path, database: str, count: int) -> Iterator[None]:
        command = [str(self.python), *(self.contender.worker or ("-m", self._module, "worker"))]
        environment = self._environment(probes, database)
        processes = []
        try:
            for number in range(count):
                with (probes / f"errors.{number}").open("wb") as errors:
                    processes.append(
                        subprocess.Popen(
                            command,
                            env=environment,
                            cwd=CHECKOUT,
                            stdout=subprocess.DEVNULL,
                            stderr=errors,
                            start_new_session=True,
                        )
                    )
            yield
        finally:
            stop(processes)

    def _wait_until_drained(self, probes: Path, jobs: int, connection: psycopg.Connection) -> float:
        deadline = time.monotonic() + DRAIN_WITHIN
        while (hits := read_hits(probes)).calls < jobs:
            if time.monotonic() > deadline:
                said = " ".join(last_line(path.read_text(errors="replace")) for path in probes.glob("errors.*"))
                raise MeasureFailed(f"{hits.calls} of {jobs} jobs were run within {DRAIN_WITHIN:.0f} s: {said}")
            time.sleep(GLANCE)
        end = hits.last
        while self.contender.engine.unfinished is not None:
            row = connection.execute(self.contender.engine.unfinished).fetchone()  # type: ignore[arg-type]
            end = time.time()
            if row == (0,):
                break
            if time.monotonic() > deadline:
                raise MeasureFailed(f"handlers ran, but {row} jobs were never completed")
            time.sleep(GLANCE)
        return end - hits.first

    @property
    def _module(self) -> str:
        return f"benchmarks.tasks.engines.{self.contender.engine.module}"

    def _environment(self, probes: Path, database: str) -> dict[str, str]:
        return {
            **os.environ,
            "BENCH_DSN": self.postgres.dsn(database),
            "BENCH_OPTIONS": json.dumps(dict(self.contender.options)),
            "BENCH_REDIS": self.redis or "",
            DIRECTORY: str(probes),
            "DJANGO_SETTINGS_MODULE": "benchmarks.tasks.engines.catbird_site.settings",
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONWARNINGS": "ignore",
        }


def stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """Stop workers: politely, then with everything they have started."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_WITHIN
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, deadline - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def quantile(ordered: list[float], share: float) -> float:
    """The value that this share of an ordered list does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def read_from(path: Path, beginning: int) -> bytes:
    with path.open("rb") as file:
        file.seek(beginning)
        return file.read()


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "(it said nothing)"
