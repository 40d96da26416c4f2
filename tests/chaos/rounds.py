"""What a scenario is given: workers to start, runs to queue, faults to note, and the checks at the end."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connections

from catbird_django import run_task
from catbird_django.engine.flow_cancel import cancel_flows
from catbird_django.engine.flows import run_flows
from catbird_django.engine.tasks import run_tasks
from project.embedded.server import SUPERUSER
from tests.chaos import checks, ledger
from tests.chaos.cluster import LEDGER, Cluster
from tests.chaos.processes import GRACE, LEASE, RECOVERY_BOUND, WorkerProcess
from tests.chaos.scenario import Broken, Scenario, Skipped

QUIET_WITHIN = 120.0  # seconds until everything that was accepted has ended
# Only what a rule bounds is bounded tightly: on a machine with much else to do a process may take long to begin.
START_WITHIN = 120.0
GLANCE = 0.02
NOTHING_SPECIAL: dict[str, Any] = {}


class Round:
    """One performance of one scenario, on a database of its own."""

    def __init__(self, cluster: Cluster, scenario: Scenario, *, number: int, seed: int, is_short: bool) -> None:
        self.cluster = cluster
        self.scenario = scenario
        self.is_short = is_short
        self.random = random.Random(seed)
        self.database = f"round_{number}"
        self.using = f"chaos_{number}"  # rounds may be played at the same time, on threads
        self.accepted: list[int] = []
        self.accepted_flows: list[int] = []
        self.recoveries: list[float] = []
        self.seen: Counter[str] = Counter()
        self.workers: list[WorkerProcess] = []

    # Play

    def play(self) -> None:
        """Play the scenario, wait until everything is quiet, and check what must be true. Raise Broken, or Skipped."""
        try:
            with self._database():
                try:
                    self.scenario.play(self)
                    self.become_quiet()
                    self._judge()
                except Skipped:
                    raise
                except Exception as error:
                    raise Broken(f"{type(error).__name__}: {error}\n{self._last_words()}") from error
        finally:
            self.end_workers()

    def become_quiet(self) -> None:
        """Let workers finish everything that was accepted, and stop them."""
        is_left = self.live(self.accepted) or self.live_flows(self.accepted_flows)
        if is_left and not any(worker.is_alive for worker in self.workers):
            self.start_worker()
        self.until_ended(self.accepted, seconds=QUIET_WITHIN)
        self.until_flows_ended(self.accepted_flows)
        for worker in self.workers:
            self.stop(worker)

    def _judge(self) -> None:
        for worker in self.workers:
            self.seen.update(worker.fired())
        connections[self.using].close()
        if problems := list(checks.what_is_wrong(self)):
            raise Broken(checks.in_short(problems))
        if missing := [fault for fault in self.scenario.fires if not self.seen[fault]]:
            raise Broken(f"void, because it never happened: {', '.join(missing)}")

    def _last_words(self) -> str:
        words = [f"--- worker {worker.pid}:\n{worker.said()[-1500:]}" for worker in self.workers]
        return "\n".join([*words, f"--- server:\n{self.cluster.said()[-800:]}"])

    @contextmanager
    def _database(self) -> Iterator[None]:
        self.cluster.ensure_running()
        self.cluster.create(self.database)
        self.cluster.execute(ledger.table(self.database), database=LEDGER)
        connections.databases[self.using] = _alias_settings(self.cluster, self.database)
        try:
            yield
        finally:
            connections[self.using].close()
            del connections[self.using]
            del connections.databases[self.using]
            self.end_workers()
            self.cluster.ensure_running()
            self.cluster.drop(self.database)

    # Workers

    def start_worker(
        self, *arguments: str, wait: bool = True, url: str | None = None, env: dict[str, str] | None = None, **how: Any
    ) -> WorkerProcess:
        """Start a worker, and wait until it says so; `failpoint` and `settings` are passed on."""
        log = self.cluster.home / f"{self.database}-worker-{len(self.workers)}.log"
        environment = {**self.cluster.environment(self.database, url=url), **(env or {})}
        worker = WorkerProcess(log, environment, *arguments, **how)
        self.workers.append(worker)
        if wait:
            self.until_started(worker)
        return worker

    def until_started(self, worker: WorkerProcess) -> None:
        self.until(lambda: worker.has_started or not worker.is_alive, seconds=START_WITHIN, what="a worker's start")
        self.expect(worker.has_started, f"the worker did not start: {worker.said()[-500:]}")
        worker.started_at = time.time()

    def stop(self, worker: WorkerProcess) -> None:
        """Ask a worker to stop, if it lives; it must end with 0 within its grace and 5 s (W4)."""
        if not worker.is_alive:
            return
        self.until_started(worker)  # before, a signal ends it as any process
        worker.send(signal.SIGTERM)
        try:
            code = worker.wait(GRACE + 5)
        except subprocess.TimeoutExpired:
            raise Broken(f"worker {worker.pid} does not stop") from None
        self.expect(code == 0, f"worker {worker.pid} stopped with {code}")

    def end_workers(self) -> None:
        """Make sure that none is left, whatever state it is in."""
        for worker in self.workers:
            worker.end()

    # Runs

    def run(self, task: str, input: Any = NOTHING_SPECIAL, **options: Any) -> int:
        """Queue a run as any client does; it is accepted when this returns."""
        try:
            handle = run_task(task, input, using=self.using, **options)
        finally:
            connections[self.using].close()
        self.accepted.append(handle.id)
        return handle.id

    def run_many(self, task: str, count: int, input: str = '{"seconds": 0}') -> list[int]:
        """Queue many runs at once, with the same input as JSON text."""
        try:
            answers = run_tasks(task, [input] * count, all_events=True, using=self.using)
        finally:
            connections[self.using].close()
        ids = [answer.run_id for answer in answers if answer.run_id]
        self.accepted += ids
        return ids

    def load(self, count: int, *, seconds: float) -> list[int]:
        """Queue runs, half of them sync and half async, each taking so many seconds."""
        text = f'{{"seconds": {seconds}}}'
        return self.run_many("note", count // 2, text) + self.run_many("anote", count - count // 2, text)

    def run_flows(self, flow: str, *inputs: Any) -> list[int]:
        """Start runs of a flow; they are accepted when this returns."""
        try:
            answers = run_flows(flow, [json.dumps(value) for value in inputs], using=self.using)
        finally:
            connections[self.using].close()
        ids = [answer.run_id for answer in answers if answer.run_id]
        self.accepted_flows += ids
        return ids

    def cancel_flow(self, run_id: int) -> None:
        try:
            cancel_flows([run_id], reason="enough", actor="campaign", notify=True, using=self.using)
        finally:
            connections[self.using].close()

    def items(self, run_id: int, status: str) -> int:
        """How many items of a flow's run are in this status."""
        statement = "SELECT count(*) FROM cb_items WHERE flow_run_id = %s AND status = %s"
        return int(self.query(statement, [run_id, status])[0][0])

    def flow_status(self, run_id: int) -> str:
        return str(self.query("SELECT status FROM cb_flow_runs WHERE id = %s", [run_id])[0][0])

    def query(self, statement: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        return self.cluster.query(statement, parameters, database=self.database)

    def refusals(self, words: str) -> int:
        """How often the server's log has these words about this round's database."""
        return self.cluster.said(f"{self.database} ").count(words)

    def row(self, run_id: int) -> dict[str, Any]:
        """What is stored of a run."""
        [(row,)] = self.query("SELECT to_jsonb(run) FROM cb_task_runs AS run WHERE id = %s", [run_id])
        return dict(row)

    def column(self, name: str, run_ids: Sequence[int]) -> list[Any]:
        """One column of these runs."""
        rows = self.query(f"SELECT {name} FROM cb_task_runs WHERE id = ANY (%s) ORDER BY id", [list(run_ids)])
        return [value for (value,) in rows]

    def effects(self, run_id: int | None = None) -> list[tuple[int, int, int, str]]:
        """The ledger: run, attempt, pid and phase, in order."""
        where = " WHERE part = ''" + ("" if run_id is None else f" AND run = {int(run_id)}")
        rows = self.cluster.query(
            f"SELECT run, attempt, pid, phase FROM {self.database}.fx{where} ORDER BY id", database=LEDGER
        )
        return [(run, attempt, pid, phase) for run, attempt, pid, phase in rows]

    def item_effects(self) -> list[tuple[int, int, int, int, str]]:
        """The ledger of items: the flow's run, index, attempt, pid and phase, in order."""
        rows = self.cluster.query(
            f"SELECT run, part, attempt, pid, phase FROM {self.database}.fx WHERE part ~ '^item' ORDER BY id",
            database=LEDGER,
        )
        return [(run, int(part.split()[1]), attempt, pid, phase) for run, part, attempt, pid, phase in rows]

    def step_effects(self, step: str) -> list[tuple[int, int]]:
        """The ledger of a step: the flow's run and pid, each time it was begun."""
        statement = f"SELECT run, pid FROM {self.database}.fx WHERE part = %s ORDER BY id"
        return [(run, pid) for run, pid in self.cluster.query(statement, [f"step {step}"], database=LEDGER)]

    def began(self, run_id: int, attempt: int = 1) -> float | None:
        """When an attempt of a run began, by the ledger; None if it did not."""
        rows = self.cluster.query(
            f"SELECT extract(epoch FROM at)::float FROM {self.database}.fx"
            " WHERE run = %s AND attempt = %s AND phase = 'begin' ORDER BY id",
            [run_id, attempt],
            database=LEDGER,
        )
        return rows[0][0] if rows else None

    # Waiting and judging

    def until(self, condition: Callable[[], Any], *, seconds: float = 60.0, what: str = "it") -> None:
        """Wait for something that workers do; a server that is away is waited for too."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if condition():
                    return
            except psycopg.OperationalError:
                pass
            if time.monotonic() > deadline:
                raise Broken(f"{what} did not happen within {seconds:g} s")
            time.sleep(GLANCE)

    def until_ended(self, run_ids: Sequence[int], *, seconds: float = QUIET_WITHIN) -> None:
        wanted = list(run_ids)
        self.until(lambda: self.live(wanted) == 0, seconds=seconds, what="the end of all runs")

    def until_begun(self, run_id: int, *, attempt: int = 1, seconds: float = 60.0) -> float:
        """Wait until an attempt has begun; return when."""
        self.until(lambda: self.began(run_id, attempt), seconds=seconds, what=f"attempt {attempt} of run {run_id}")
        began = self.began(run_id, attempt)
        assert began is not None
        return began

    def until_lease_ran_out(self, run_id: int) -> None:
        """Wait, without a worker that would take it back."""
        over = "SELECT 1 FROM cb_task_runs WHERE id = %s AND lease_until < clock_timestamp()"
        self.until(lambda: self.query(over, [run_id]), what="the end of its lease")

    def live_flows(self, run_ids: Sequence[int]) -> int:
        """How many of these runs of flows have not ended."""
        statement = "SELECT count(*) FROM cb_flow_runs WHERE id = ANY (%s) AND finished_at IS NULL"
        return int(self.query(statement, [list(run_ids)])[0][0])

    def until_flows_ended(self, run_ids: Sequence[int], *, seconds: float = QUIET_WITHIN) -> None:
        wanted = list(run_ids)
        self.until(lambda: self.live_flows(wanted) == 0, seconds=seconds, what="the end of all runs of flows")

    def live(self, run_ids: Sequence[int]) -> int:
        """How many of these runs have not ended."""
        statement = "SELECT count(*) FROM cb_task_runs WHERE id = ANY (%s) AND status <> ALL (%s)"
        return int(self.query(statement, [list(run_ids), list(checks.TERMINAL)])[0][0])

    def recovered(self, run_id: int, *, since: float, attempt: int = 2, within: float = RECOVERY_BOUND) -> None:
        """Note how long it took until work on a run went on, and refuse what took too long (W3).

        Nobody can take over before there is somebody: the time counts from a lease before the last worker's start.
        """
        began = self.until_begun(run_id, attempt=attempt)
        seconds = began - max(since, self.workers[-1].started_at - LEASE)
        self.recoveries.append(round(seconds, 2))
        self.expect(seconds <= within, f"work went on after {seconds:.1f} s, and must within {within:g} s")

    def expect(self, is_so: object, otherwise: str) -> None:
        if not is_so:
            raise Broken(otherwise)

    def expect_counts(self, run_id: int, *, deliveries: int, lost: int = 0, failures: int = 0) -> None:
        """The three counters of T7a."""
        row = self.row(run_id)
        counts = row["delivery_count"], row["lost_count"], row["failure_count"]
        self.expect(counts == (deliveries, lost, failures), f"run {run_id}: delivered, lost, failed {counts}")

    def saw(self, fault: str) -> None:
        """Note that a fault has really happened."""
        self.seen[fault] += 1


def _alias_settings(cluster: Cluster, database: str) -> dict[str, Any]:
    mine = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": database,
        "USER": SUPERUSER,
        "HOST": cluster.socket_directory,
        "OPTIONS": {"options": "-c default_transaction_read_only=off"},
    }
    configured: dict[str, Any] = connections.configure_settings({"default": mine})["default"]
    return configured
