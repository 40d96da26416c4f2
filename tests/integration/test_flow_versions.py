"""A flow whose code changes: each run stays on its version, and whoever has a step's handler runs it (F21)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from django.db import connections

from catbird_django import Flow, FlowHandle
from catbird_django.conf import get_settings
from catbird_django.definitions.registry import Registry, registry
from catbird_django.models import FlowRun, StepRun
from catbird_django.worker import repertoire
from catbird_django.worker.worker import Worker, WorkerOptions
from tests.support import until, work_off

pytestmark = pytest.mark.django_db(transaction=True)


class Code:
    """The code of one release: its flow, and what a process that has it knows."""

    def __init__(self, name: str, *, is_new: bool) -> None:
        with registry.isolated():
            registry.flows.clear()
            self.flow = Flow("order")
            self.ran: list[str] = []

            @self.flow.step
            def fetch(input: int) -> int:
                self.ran.append("fetch")
                return input

            @self.flow.step
            def check(fetch: int) -> int:
                self.ran.append("check")
                return fetch

            if is_new:

                @self.flow.step(name="bill", concurrency=1)
                def bill_by_name(check: int, input: int) -> str:
                    self.ran.append("bill")
                    return f"{name} {check + input}"
            else:

                @self.flow.step
                def bill(check: int) -> str:
                    self.ran.append("bill")
                    return f"{name} {check}"

            self.registry = Registry(flows=dict(registry.flows))

    def run(self) -> FlowHandle:
        return self.flow.run(1)

    def work_off(self) -> None:
        options = WorkerOptions(concurrency=2, until_idle=True)
        worker = Worker(options, get_settings(), self.registry)
        worker.enter()
        worker.run()

    @contextmanager
    def working(self) -> Iterator[None]:
        quick = replace(get_settings(), idle_poll_interval=get_settings().poll_interval / 10)
        worker = Worker(WorkerOptions(concurrency=2), quick, self.registry)
        worker.enter()
        thread = threading.Thread(target=lambda: (worker.run(), connections.close_all()))
        thread.start()
        try:
            yield
        finally:
            worker.stop()
            thread.join(20)


def statuses(run: FlowHandle) -> dict[str, str]:
    steps = StepRun.objects.filter(flow_run_id=run.id).select_related("step")
    return {one.step.name: one.status for one in steps}


def test_new_code_runs_the_steps_it_knows_of_old_runs_and_leaves_the_others_to_old_code() -> None:
    old, new = Code("old", is_new=False), Code("new", is_new=True)
    begun, begun_anew = old.run(), new.run()
    assert FlowRun.objects.get(pk=begun.id).flow_id != FlowRun.objects.get(pk=begun_anew.id).flow_id

    new.work_off()

    assert begun_anew.wait(timeout=5) == "new 2"
    assert statuses(begun) == {"fetch": "completed", "check": "completed", "bill": "queued"}
    assert new.ran.count("bill") == 1

    old.work_off()

    assert begun.wait(timeout=5) == "old 1"
    assert old.ran == ["bill"]


def test_a_worker_that_runs_notices_a_new_version_and_runs_the_steps_of_it_that_it_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repertoire, "FIND_STEPS_EVERY", 0.1)
    old, new = Code("old", is_new=False), Code("new", is_new=True)

    with old.working():
        begun = new.run()
        until(lambda: statuses(begun) == {"fetch": "completed", "check": "completed", "bill": "queued"})

    assert old.ran == ["fetch", "check"]


def test_a_worker_that_can_run_nothing_leaves_what_is_due_and_ends_when_it_is_told_to_end_idle() -> None:
    """F21, W1."""
    flow = Code("old", is_new=False).flow
    run = flow.run(1)

    work_off()

    assert StepRun.objects.get(flow_run=run.id, step__name="fetch").status == "queued"


def test_a_flow_that_is_taken_back_to_what_it_was_is_the_old_version_again() -> None:
    old, new = Code("old", is_new=False), Code("new", is_new=True)
    first, second, third = old.run(), new.run(), old.run()
    versions = [FlowRun.objects.get(pk=run.id).flow.version for run in (first, second, third)]

    assert versions == [1, 2, 1]
