"""One contender, ready to be measured: databases, adapter calls and workers, all bounded in time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contenders import Contender
from benchmarks.engines.exchange import ANSWER
from benchmarks.engines.probe import DIRECTORY
from benchmarks.servers import Postgres

CHECKOUT = Path(__file__).resolve().parents[1]

CALL_WITHIN = 300.0  # seconds
STOP_WITHIN = 5.0

NOTHING: dict[str, str] = {}


class MeasureFailed(Exception):
    """An engine did not do what was asked, and this is what it said."""


@dataclass(frozen=True, slots=True)
class Bench:
    """One contender: its Python, the servers, and where to tell how a long measurement goes."""

    contender: Contender
    python: Path
    postgres: Postgres
    redis: str | None
    say: Callable[[str], None]

    def prepare(self) -> None:
        """Make the engine's tables once; every measurement begins with a copy."""
        self.postgres.create(self.template)
        with self.probes() as probes:
            self.call(probes, self.template, "setup")

    @property
    def template(self) -> str:
        return "bench_" + self.contender.engine.module.removeprefix("benchmarks.").replace(".engines.", "_")

    @contextlib.contextmanager
    def fresh_database(self, *, template: str | None = None) -> Iterator[str]:
        """A copy of the engine's empty database, or of another one, dropped afterwards."""
        database = f"{self.template}_run"
        self.postgres.create(database, template=template or self.template)
        if self.contender.engine.needs_redis:
            with self.probes() as probes:
                self.call(probes, database, "setup")
        try:
            yield database
        finally:
            self.postgres.drop(database)

    @contextlib.contextmanager
    def probes(self) -> Iterator[Path]:
        """A directory in which the handlers count."""
        with tempfile.TemporaryDirectory(prefix="catbird-bench-") as directory:
            yield Path(directory)

    def call(self, probes: Path, database: str, *words: object) -> dict[str, Any]:
        """Ask the adapter for something, and give its answer."""
        environment = self._environment(probes, database)
        try:
            done = subprocess.run(
                self._command(words),
                env=environment,
                cwd=CHECKOUT,
                capture_output=True,
                text=True,
                timeout=CALL_WITHIN,
            )
        except subprocess.TimeoutExpired as error:
            raise MeasureFailed(f"{words[0]} took longer than {CALL_WITHIN:.0f} s") from error
        return answer_in(done.stdout, done.stderr, what=str(words[0]))

    @contextlib.contextmanager
    def workers(
        self, probes: Path, database: str, count: int, *arguments: str, settings: dict[str, str] = NOTHING
    ) -> Iterator[list[subprocess.Popen[bytes]]]:
        """So many worker processes, stopped afterwards; `settings` are added to their environment."""
        worker = self.contender.worker
        command = [str(self.python), *worker, *arguments] if worker else self._command(["worker", *arguments])
        environment = self._environment(probes, database) | settings
        with self._processes([command] * count, environment, probes, "worker") as processes:
            yield processes

    @contextlib.contextmanager
    def callers(
        self, probes: Path, database: str, count: int, *words: object, settings: dict[str, str] = NOTHING
    ) -> Iterator[list[subprocess.Popen[bytes]]]:
        """So many processes that ask the adapter for the same, at the same time; what they say is in `said`."""
        environment = self._environment(probes, database) | settings
        with self._processes([self._command(words)] * count, environment, probes, "caller") as processes:
            yield processes

    @contextlib.contextmanager
    def _processes(
        self, commands: Sequence[list[str]], environment: Mapping[str, str], probes: Path, role: str
    ) -> Iterator[list[subprocess.Popen[bytes]]]:
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for number, command in enumerate(commands):
                with said(probes, role, number).open("wb") as out, errors(probes, role, number).open("wb") as err:
                    started = subprocess.Popen(
                        command, env=environment, cwd=CHECKOUT, stdout=out, stderr=err, start_new_session=True
                    )
                processes.append(started)
            yield processes
        finally:
            stop(processes)

    def _command(self, words: Sequence[object]) -> list[str]:
        return [str(self.python), "-m", self.contender.engine.module, *map(str, words)]

    def _environment(self, probes: Path, database: str) -> dict[str, str]:
        return {
            **os.environ,
            "BENCH_DSN": self.postgres.dsn(database),
            "BENCH_OPTIONS": json.dumps(dict(self.contender.options)),
            "BENCH_REDIS": self.redis or "",
            DIRECTORY: str(probes),
            "DJANGO_SETTINGS_MODULE": self.contender.engine.settings,
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONWARNINGS": "ignore",
        }


def said(probes: Path, role: str, number: int) -> Path:
    """Where the standard output of a process is."""
    return probes / f"said.{role}.{number}"


def errors(probes: Path, role: str, number: int) -> Path:
    """Where the standard error of a process is."""
    return probes / f"errors.{role}.{number}"


def complaints(probes: Path, role: str = "worker") -> str:
    """The last words of all processes of this role."""
    return " ".join(last_line(path.read_text(errors="replace")) for path in sorted(probes.glob(f"errors.{role}.*")))


def answer_in(out: str, err: str, *, what: str) -> dict[str, Any]:
    """What an adapter has answered; MeasureFailed, with its last words, if it has not."""
    for line in out.splitlines():
        if line.startswith(ANSWER):
            return dict(json.loads(line.removeprefix(ANSWER)))
    raise MeasureFailed(f"{what}: {last_line(err)}")


def stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """Stop processes: politely, then with everything they have started."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_WITHIN
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, deadline - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "(it said nothing)"
