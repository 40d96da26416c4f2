"""Random flows on real workers that are killed, compared with an interpreter in plain Python.

`ORACLE_FLOWS=500 python3 bootstrap.py test tests/integration/test_flow_oracle.py` runs the long version.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catbird_django import Flow, FlowHandle, SignalRefused
from catbird_django.conf import get_settings
from catbird_django.definitions.registry import registry
from catbird_django.engine.doctor import examine
from catbird_django.engine.flows import read_flow_run
from catbird_django.engine.items import read_items
from catbird_django.models import FlowRun, Item, StepRun
from catbird_django.statuses import TERMINAL_STATUSES, SignalVerdict
from tests.oracle.flows import Decision, declare
from tests.oracle.interpreter import Expectation, interpret
from tests.oracle.shapes import FlowShape, random_flow
from tests.support import until, until_no_transaction_is_open
from tests.support import working as worker_threads

ROOT = Path(__file__).parents[2]
FLOWS = int(os.environ.get("ORACLE_FLOWS", "60"))
WORKERS = 3
QUICK = (
    '{"LEASE": 2, "SWEEP_INTERVAL": 0.3, "POLL_INTERVAL": 0.3, "IDLE_POLL_INTERVAL": 0.5, "EVENTS": "all",'
    ' "CONCURRENCY": 4}'
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120 + 2 * FLOWS)]


@dataclass
class Workers:
    """Real worker processes; one that is killed is replaced."""

    database_url: str
    chance: random.Random
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    kills: int = 0

    def start(self) -> None:
        environment = {
            **os.environ,
            "DATABASE_URL": self.database_url,
            "DJANGO_SETTINGS_MODULE": "tests.oracle.settings",
            "ORACLE_FLOWS": str(FLOWS),
            "CATBIRD": QUICK,
        }
        command = [sys.executable, str(ROOT / "manage.py"), "catbird_worker"]
        quiet = subprocess.DEVNULL
        self.processes.append(subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet, cwd=ROOT))

    def kill_one(self) -> None:
        victim = self.processes.pop(self.chance.randrange(len(self.processes)))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        self.kills += 1
        self.start()

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        until_no_transaction_is_open()


@contextmanager
def working(database_url: str, chance: random.Random) -> Iterator[Workers]:
    workers = Workers(database_url, chance)
    try:
        for _ in range(WORKERS):
            workers.start()
        yield workers
    finally:
        workers.stop()


def test_random_flows_end_as_they_must_though_workers_are_killed(database_url: str) -> None:
    """F3-F12, F14-F16, F18: nothing lost, nothing doubled, and every step as the interpreter says."""
    chance = random.Random(20261118)
    with registry.isolated():
        shapes = {seed: random_flow(seed) for seed in range(FLOWS)}
        flows = {seed: declare(shape) for seed, shape in shapes.items()}
        with working(database_url, chance) as workers:
            handles = {seed: flow.run(shapes[seed].input) for seed, flow in flows.items()}
            waiting = [(seed, name) for seed, shape in shapes.items() for name in shape.decisions]
            chance.shuffle(waiting)  # before, while and after the steps before them run
            give_signals_and_kill(waiting, shapes, handles, workers, chance)

        differences = [difference for seed in shapes for difference in compare(shapes[seed], handles[seed].id)]
    print(f"{FLOWS} flows, {workers.kills} workers killed, {len(differences)} differences")  # shown with -s
    assert differences == []
    assert workers.kills > 0
    assert what_the_doctor_says() == []


ITEM_FAILED = dict  # the type of what is in the place of an item that failed
FAULTS = {
    "items lose their errors": (
        "a list with errors",
        "_cb_error_in_place(p_index integer, p_error jsonb) RETURNS jsonb",
        "SELECT '1'::jsonb",
    ),
    "steps run without what they need": (
        "dependency",
        "_cb_lacks_a_dependency(p_flow_run_id bigint, p_step_id bigint) RETURNS boolean",
        "SELECT false",
    ),
    "every condition holds": (
        "condition",
        "_cb_evaluate_condition(p_tree jsonb, p_values jsonb) RETURNS TABLE (verdict boolean, error text)",
        "SELECT true, NULL::text",
    ),
}


@settings(
    max_examples=max(5, FLOWS // 50),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seeds=st.sets(st.integers(min_value=1000, max_value=2**31), min_size=1, max_size=6))
def test_flows_that_nobody_has_seen_before_end_as_they_must_too(seeds: set[int]) -> None:
    """F3-F12, F14-F16, F18: of those that do not, hypothesis finds the smallest set."""
    with registry.isolated():
        assert differences_of({seed: declare(random_flow(seed)) for seed in sorted(seeds)}) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_an_engine_with_a_fault_is_found_out(fault: str) -> None:
    """The comparison can fail: it has nothing to say of these flows, and a lot once the fault is there."""
    reason, function, body = FAULTS[fault]
    seeds = [seed for seed in range(FLOWS) if reason in what_happens_in(random_flow(seed))]
    with registry.isolated():
        flows = {seed: declare(random_flow(seed)) for seed in seeds[:5]}
        assert differences_of(flows) == []

        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_get_functiondef(%s::regproc)", [function.partition("(")[0]])
            [as_it_was] = cursor.fetchone()
            cursor.execute(f"CREATE OR REPLACE FUNCTION {function} LANGUAGE sql AS $$ {body} $$")
            try:
                assert differences_of(flows) != []
            finally:
                cursor.execute(as_it_was)


def what_happens_in(shape: FlowShape) -> set[str]:
    ends = interpret(shape).steps.values()
    has_errors = any(ITEM_FAILED in map(type, end.output) for end in ends if isinstance(end.output, list))
    return {end.reason for end in ends} | ({"a list with errors"} if has_errors else set())


def differences_of(flows: dict[int, Flow[Any, Any]]) -> list[str]:
    """Run flows once each, with their signals, by a worker of this process."""
    shapes = {seed: random_flow(seed) for seed in flows}
    handles = {seed: flow.run(shapes[seed].input) for seed, flow in flows.items()}
    for seed, shape in shapes.items():
        for name in shape.decisions:
            give_signal(handles[seed], name, shape)
    with worker_threads(concurrency=4, sweep_interval=timedelta(seconds=0.1)):
        until(lambda: not FlowRun.objects.live().exists(), seconds=60)
    return [difference for seed in shapes for difference in compare(shapes[seed], handles[seed].id)]


def test_the_random_flows_have_everything_in_them() -> None:
    """Every way in which a step can end, and everything that it can wait for."""
    shapes = [random_flow(seed) for seed in range(60)]
    ends = Counter(f"{end.status} {end.reason}".strip() for shape in shapes for end in interpret(shape).steps.values())
    steps = [step for shape in shapes for step in shape.steps]

    reasons = ("condition", "dependency", "handler", "exhausted")
    assert min(ends[end] for end in ("completed", "failed", "never", *(f"skipped {reason}" for reason in reasons))) >= 5
    assert {tuple(sorted(interpret(shape).statuses)) for shape in shapes} >= {("completed",), ("failed",)}
    assert sum(step.has_signal for step in steps) >= 50
    assert sum("signal" in (step.condition or "") for step in steps) >= 5
    assert sum(0 < step.failures <= step.max_retries for step in steps) >= 20
    assert {step.on_unmet for step in steps} == {"skip", "skip_downstream", "fail"}


def test_the_random_flows_have_every_kind_of_step_in_them() -> None:
    """F6, F14-F16: lists of items, empty ones, with errors in them, over each other; loops that fail; early ends."""
    shapes = [random_flow(seed) for seed in range(60)]
    ends = [(shape, step, interpret(shape).steps[step.name]) for shape in shapes for step in shape.steps]
    completed = [(shape, step, end) for shape, step, end in ends if end.status == "completed"]
    lists = [
        (shape, step, end.output)
        for shape, step, end in completed
        if step.kind == "map" and isinstance(end.output, list)
    ]

    assert min(Counter(step.kind for _, step, _ in completed)[kind] for kind in ("map", "reduce")) >= 15
    assert sum(output == [] for _, _, output in lists) >= 5
    assert sum(ITEM_FAILED in map(type, output) for _, _, output in lists) >= 5
    assert sum(step.over == "input" for _, step, _ in lists) >= 5
    assert sum(step.over != "input" and shape.step(step.over).kind == "map" for shape, step, _ in lists) >= 5
    assert sum(0 < step.failures <= step.max_retries for _, step, _ in lists) >= 3
    assert {end.status for _, step, end in ends if step.kind == "map"} >= {"completed", "failed", "skipped", "early"}
    assert {end.status for _, step, end in ends if step.kind == "reduce"} >= {"completed", "failed", "skipped"}
    assert sum(step.is_inline and step.failures == 1 for _, step, _ in completed) >= 5
    assert sum(bool(interpret(shape).early) for shape in shapes) >= 5


def give_signals_and_kill(
    waiting: list[tuple[int, str]],
    shapes: dict[int, FlowShape],
    handles: dict[int, FlowHandle],
    workers: Workers,
    chance: random.Random,
) -> None:
    deadline = time.monotonic() + 60 + 2 * FLOWS
    while FlowRun.objects.live().exists():
        assert time.monotonic() < deadline, what_lives()
        for _ in range(min(len(waiting), chance.randint(1, 8))):
            seed, name = waiting.pop()
            give_signal(handles[seed], name, shapes[seed])
        if chance.random() < 0.15 and workers.kills < FLOWS // 6:
            workers.kill_one()
        time.sleep(0.1)  # between two looks


def give_signal(handle: FlowHandle, step: str, shape: FlowShape) -> None:
    """Give a step its signal; a step that was skipped, or whose run has ended, does not want it any more."""
    decision = shape.decisions[step]
    try:
        handle.signal(step, Decision(ok=bool(decision["ok"]), value=int(decision["value"])), actor="oracle")
    except SignalRefused as refused:
        if refused.verdict is not SignalVerdict.LATE:
            raise


def what_lives() -> list[tuple[int, str, str]]:
    live = StepRun.objects.live().filter(flow_run__status="started").select_related("step")[:10]
    return [(run.flow_run_id, run.step.name, run.status) for run in live]


def compare(shape: FlowShape, run_id: int) -> list[str]:
    """What is different from what the interpreter says."""
    expected, run = interpret(shape), FlowRun.objects.get(pk=run_id)
    steps = {one.step.name: one for one in StepRun.objects.filter(flow_run=run).select_related("step")}
    found = []
    output = _output_of(run)
    if run.status not in expected.statuses:
        found.append(f"{shape.name}: {run.status}, not {expected.statuses}: {run.error}")
    elif run.status == "failed":
        if run.error["step"] not in expected.failing:
            found.append(f"{shape.name}: failed in {run.error['step']}, not in one of {expected.failing}")
    elif expected.early:
        if output not in expected.early.get(run.early_step, ()):
            found.append(f"{shape.name}: {run.early_step!r} ended it with {output}, not one of {expected.early}")
    elif output != expected.output(shape):
        found.append(f"{shape.name}: gave {output}, not {expected.output(shape)}")
    if Item.objects.live().filter(flow_run_id=run_id).exists():
        found.append(f"{shape.name}: items of it live")
    return found + [text for name, one in steps.items() for text in _compare_step(shape, name, one, expected, run)]


def _output_of(run: FlowRun) -> Any:
    state = read_flow_run(run.pk, using="default")
    return None if state is None or state.output is None else json.loads(state.output)


def _compare_step(shape: FlowShape, name: str, one: StepRun, expected: Expectation, run: FlowRun) -> list[str]:
    end = expected.steps[name]
    if one.status not in TERMINAL_STATUSES:
        return [f"{shape.name}.{name} still lives: {one.status}"]
    if (run.status == "failed" or run.early_step) and one.status == "canceled":
        return []  # what was stopped
    output = one.output
    if shape.step(name).kind == "map" and one.status == "completed":
        output = [json.loads(item.value) for item in read_items(one.pk, limit=1000, using="default")]
    if run.early_step == name and (one.status, output) == ("completed", _output_of(run)):
        return []
    if (one.status, output, one.skip_reason) != (end.status, end.output, end.reason):
        return [f"{shape.name}.{name}: {one.status} {output} {one.skip_reason!r}, not {end}"]
    return []


def what_the_doctor_says() -> list[object]:
    settings = get_settings()
    findings = examine(
        lease=settings.lease,
        sweep=settings.sweep_interval,
        worker_ttl=settings.worker_ttl,
        patience=settings.lease,
        is_notifying=settings.notify,
        using=settings.database,
    )
    return [finding for finding in findings if finding.severity == "error"]
