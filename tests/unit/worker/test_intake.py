"""One call for the lanes, one for the claims of each kind; what was claimed is not lost when the other call fails."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError

from catbird_django.engine.items import ItemClaim, ItemDelivery
from catbird_django.engine.steps import StepClaim, StepDelivery
from catbird_django.engine.tasks import Delivery, Lane, LaneRequest, TaskClaim
from catbird_django.worker import intake, kinds
from catbird_django.worker.intake import Intake
from catbird_django.worker.kinds import Kind, sorted_by_kind
from catbird_django.worker.lanes import in_order

OF_A_TASK = TaskClaim(1, Delivery(1, "t"), "default", 4, 0, "1", None, 1, 0, 0)
OF_A_STEP = StepClaim(2, StepDelivery(2, "s"), "default", -4, 0, None, None, 1, 0, 0, 9, None, None, None)
OF_A_MAP = ItemClaim(
    5, ItemDelivery(5, "i"), "default", -7, 0, None, None, 1, 0, 0, 9, None, None, None, 2, 0, "1", False
)
TASK_LANE, STEP_LANE, ITEM_LANE = Lane("default", 4, 0), Lane("default", -4, 0), Lane("default", -7, 0)


class Handlers:
    """What an intake asks a repertoire."""

    def __init__(self, task_ids: list[int], step_ids: list[int]) -> None:
        self.task_ids, self.step_ids = task_ids, step_ids

    def find_new_steps(self, added: Any) -> None: ...

    def kind_of(self, handler_id: int) -> Kind:
        if handler_id > 0:
            return kinds.TASKS
        return kinds.ITEMS if handler_id == ITEM_LANE.handler_id else kinds.STEPS


class NoCapacities:
    def add(self, handler_id: int, *, like: int) -> None: ...


def intake_of(task_ids: list[int], step_ids: list[int]) -> Intake:
    how = {"queues": None, "worker_id": 1, "lease": timedelta(seconds=1), "all_events": False, "using": "default"}
    handlers: Any = Handlers(task_ids, step_ids)
    capacities: Any = NoCapacities()
    return Intake(handlers, capacities=capacities, **how)


def kind(name: str, answer: Any, calls: list[Any]) -> Any:
    def call(asked: Any, **_: Any) -> Any:
        calls.append((name, asked))
        if isinstance(answer, Exception):
            raise answer
        return answer

    return call


@pytest.mark.parametrize(
    ("task_ids", "step_ids", "asked"),
    [([1], [], ["tasks"]), ([], [1], ["steps"]), ([1], [1], ["both"])],
)
def test_lanes_are_found_in_one_call_whatever_the_kinds(
    monkeypatch: pytest.MonkeyPatch, task_ids: list[int], step_ids: list[int], asked: list[str]
) -> None:
    """W6."""
    calls: list[str] = []
    monkeypatch.setattr(intake.tasks, "find_task_lanes", lambda *_, **__: calls.append("tasks") or [])
    monkeypatch.setattr(intake.steps, "find_step_lanes", lambda *_, **__: calls.append("steps") or [])
    monkeypatch.setattr(intake.both, "find_lanes", lambda *_, **__: calls.append("both") or [])

    intake_of(task_ids, step_ids).find_lanes()

    assert calls == asked


def patched(
    monkeypatch: pytest.MonkeyPatch, *, of_tasks: Any, of_steps: Any, of_items: Any = None, call: str
) -> list[Any]:
    calls: list[Any] = []
    for name, answer in (("TASKS", of_tasks), ("STEPS", of_steps), ("ITEMS", of_items)):
        known: Kind = getattr(kinds, name)
        values = {field: getattr(known, field) for field in known.__dataclass_fields__}
        monkeypatch.setattr(kinds, name, Kind(**{**values, call: kind(name, answer, calls)}))
    return calls


def test_each_kind_is_asked_for_its_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = patched(monkeypatch, of_tasks=[OF_A_TASK], of_steps=[OF_A_STEP], of_items=[OF_A_MAP], call="claim")
    step, one, items = (LaneRequest(lane, 0, 2) for lane in (STEP_LANE, TASK_LANE, ITEM_LANE))

    assert intake_of([4], [4, 7]).claim([step, items, one]) == [OF_A_STEP, OF_A_MAP, OF_A_TASK]
    assert calls == [("STEPS", [step]), ("ITEMS", [items]), ("TASKS", [one])]


def test_what_one_kind_gave_is_kept_when_the_other_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [LaneRequest(TASK_LANE, 0, 1), LaneRequest(STEP_LANE, 0, 2)]
    patched(monkeypatch, of_tasks=[OF_A_TASK], of_steps=OperationalError("gone"), call="claim")
    assert intake_of([4], [4]).claim(requests) == [OF_A_TASK]

    patched(monkeypatch, of_tasks=OperationalError("gone"), of_steps=[], call="claim")
    with pytest.raises(OperationalError):
        intake_of([4], [4]).claim(requests)


def test_one_suspect_is_claimed_of_the_best_lane_that_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """T7a."""
    calls = patched(monkeypatch, of_tasks=OF_A_TASK, of_steps=None, call="claim_suspect")

    assert intake_of([4], [4]).claim_suspect([STEP_LANE, TASK_LANE]) is OF_A_TASK
    assert calls == [("STEPS", [STEP_LANE]), ("TASKS", [TASK_LANE])]


def test_claims_of_two_kinds_are_begun_in_the_order_of_their_lanes() -> None:
    """T4b: their ids do not compare."""
    requests = [LaneRequest(STEP_LANE, 0, 1), LaneRequest(TASK_LANE, 0, 1)]
    urgent = OF_A_TASK._replace(run_id=9, priority=5, delivery=Delivery(9, "u"))
    requests.append(LaneRequest(Lane("default", 4, 5), 0, 1))

    assert in_order([OF_A_TASK, urgent, OF_A_STEP], requests) == [urgent, OF_A_STEP, OF_A_TASK]
    assert in_order([urgent, OF_A_TASK], requests) == [urgent, OF_A_TASK]


def test_deliveries_are_told_apart_by_their_type_and_sorted() -> None:
    """One lock order for everyone (R6)."""
    mixed = {Delivery(3, "a"), ItemDelivery(1, "e"), StepDelivery(2, "b"), Delivery(1, "c"), StepDelivery(1, "d")}

    assert list(sorted_by_kind(mixed)) == [
        (kinds.TASKS, [Delivery(1, "c"), Delivery(3, "a")]),
        (kinds.STEPS, [StepDelivery(1, "d"), StepDelivery(2, "b")]),
        (kinds.ITEMS, [ItemDelivery(1, "e")]),
    ]
    assert list(sorted_by_kind([])) == []
