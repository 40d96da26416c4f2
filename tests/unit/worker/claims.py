"""Claims of steps and items as a worker gets them, and a database that has the outputs of maps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from catbird_django import Flow
from catbird_django.client.context import NobodyListens
from catbird_django.engine.items import ItemClaim, ItemDelivery, ItemOutput
from catbird_django.engine.steps import StepClaim, StepDelivery
from catbird_django.worker.step_handlers import StepHandler, build_step_handlers

MAP_RUN = 17


def step_claim(**values: Any) -> StepClaim:
    return StepClaim(run_id=7, delivery=StepDelivery(7, "token"), **{**_WITHOUT, **values})


def item_claim(item: str, *, index: int = 0, is_error: bool = False, **values: Any) -> ItemClaim:
    delivery = ItemDelivery(8, "token")
    place: dict[str, Any] = {"step_run_id": MAP_RUN, "place": index, "item": item, "is_error": is_error}
    return ItemClaim(run_id=8, delivery=delivery, **{**_WITHOUT, **values}, **place)


_WITHOUT: dict[str, Any] = {
    "queue": "default",
    "handler_id": -3,
    "priority": 0,
    "input": None,
    "headers": None,
    "delivery_count": 1,
    "failure_count": 0,
    "lost_count": 0,
    "flow_run_id": 5,
    "outputs": None,
    "signal": None,
    "lists": None,
}


class StoredItems:
    """The outputs of one map, each as JSON text; `ItemError`s by the place that they stand in."""

    def __init__(self, values: Sequence[Any], *, errors: dict[int, str] | None = None) -> None:
        self._outputs = [ItemOutput(place, json.dumps(value), False) for place, value in enumerate(values)]
        for place, message in (errors or {}).items():
            error = {"index": place, "type": "ValueError", "message": message}
            self._outputs[place] = ItemOutput(place, json.dumps(error), True)
        self.limits: list[int] = []
        self.is_gone: Exception | None = None

    def read(self, step_run_id: int, *, after: int, limit: int) -> list[ItemOutput]:
        assert step_run_id == MAP_RUN
        if self.is_gone is not None:
            raise self.is_gone
        self.limits.append(limit)
        return self._outputs[after + 1 : after + 1 + limit]


def handler_of(flow: Flow[Any, Any], step: str, items: StoredItems | None = None) -> StepHandler:
    handlers = build_step_handlers([flow.definition], read_items=(items or StoredItems([])).read)
    return next(handler for key, handler in handlers.items() if key.step == step)


def arguments(handler: StepHandler, claim: StepClaim | ItemClaim) -> dict[str, Any]:
    """What its function is called with, by keyword."""
    by_keyword: dict[str, Any] = handler.arguments(claim, lambda _: NobodyListens())[0]
    return by_keyword


def call(handler: StepHandler, claim: StepClaim | ItemClaim) -> Any:
    return handler.function(*handler.arguments(claim, lambda _: NobodyListens()))
