"""Which handlers a worker has, and by which numbers (F21, T10)."""

from __future__ import annotations

from typing import Any

import pytest

from catbird_django import Flow, task
from catbird_django.definitions.registry import registry
from catbird_django.engine.items import read_items
from catbird_django.engine.steps import StepKey, StoredStep
from catbird_django.worker import repertoire
from catbird_django.worker.handlers import build_handlers
from catbird_django.worker.repertoire import FIND_STEPS_EVERY, Repertoire
from catbird_django.worker.step_handlers import build_step_handlers


class Stored:
    """The steps that the database has, in place of the database."""

    def __init__(self) -> None:
        self.ids: dict[int, StepKey] = {}
        self.inline: dict[int, set[str]] = {}  # of versions, which are the tens of the ids
        self.asked = 0

    def find(self, keys: list[StepKey], *, using: str) -> list[StoredStep]:
        self.asked += 1
        return [
            StoredStep(step_id, step_id // 10, key.step in self.inline.get(step_id // 10, ()), key)
            for step_id, key in self.ids.items()
            if key in keys
        ]


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Any:
    stored = Stored()
    monkeypatch.setattr(repertoire, "find_steps", stored.find)
    with registry.isolated():
        yield stored


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_versions_of_a_step_are_one_handler_with_one_concurrency(stored: Stored) -> None:
    flow = Flow("order")

    @flow.step(concurrency=2)
    def only(input: int) -> int: ...

    steps = build_step_handlers([flow.definition], read_items=read_items)
    [key] = steps
    stored.ids = {3: key, 8: key}
    known = Repertoire({}, steps, using="default")
    capacities = known.capacities(slots=10, prefetch=0)

    capacities[-3].take([-3])
    assert (known.step_ids, known.names) == ([3, 8], ["order.only"])
    assert capacities[-8].left(-8) == 1
    capacities[-8].take([-8])
    assert capacities[-3].left(-3) == 0


def test_a_version_that_comes_later_is_found_after_a_while_and_counts_with_the_first(stored: Stored) -> None:
    flow = Flow("order")

    @flow.step(concurrency=1)
    async def only(input: int) -> int: ...

    steps = build_step_handlers([flow.definition], read_items=read_items)
    [key] = steps
    stored.ids = {3: key}
    clock = Clock()
    known = Repertoire({}, steps, using="default", clock=clock)
    capacities = known.capacities(slots=10, prefetch=0)
    stored.ids[9] = key

    known.find_new_steps(added=capacities.add)
    assert (known.step_ids, stored.asked) == ([3], 1)
    clock.now = FIND_STEPS_EVERY
    known.find_new_steps(added=capacities.add)

    assert known.step_ids == [3, 9]
    assert known.by_id[-9] is known.by_id[-3]
    assert capacities[-9] is capacities[-3]
    capacities[-9].take([-9])
    assert capacities[-3].left(-3) == 0


def test_who_has_no_flows_never_asks_for_steps(stored: Stored) -> None:
    """W6."""

    @task
    def mail() -> None: ...

    clock = Clock()
    known = Repertoire(build_handlers([mail.definition], {"mail": 1}), {}, using="default", clock=clock)
    clock.now = 10 * FIND_STEPS_EVERY
    known.find_new_steps()

    assert stored.asked == 0
    assert (known.task_ids, known.step_ids, known.names) == ([1], [], ["mail"])


def test_in_each_version_only_its_own_inline_steps_run_with_a_step(stored: Stored) -> None:
    """F6, F21: in the others they are something else, or are not there."""
    flow = Flow("order")

    @flow.step
    def start() -> int: ...

    @flow.step(inline=True)
    def after(start: int) -> int: ...

    steps = build_step_handlers([flow.definition], read_items=read_items)
    keys = {key.step: key for key in steps}
    stored.ids = {11: keys["start"], 12: keys["after"], 21: keys["start"], 31: keys["start"], 32: keys["after"]}
    stored.inline = {1: {"after"}}
    known = Repertoire({}, steps, using="default")

    follow = {number: [one.name for one in known.by_id[-number].inline] for number in (11, 21, 31)}
    assert follow == {11: ["after"], 21: [], 31: []}
