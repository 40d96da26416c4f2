"""Random flows as real ones: the same shapes, with handlers that do what the shapes say."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async

from catbird_django import Flow, Optional, Skip, StepContext
from catbird_django.models import StepRun
from tests.oracle.interpreter import SKIP_MULTIPLES_OF
from tests.oracle.shapes import ALWAYS, FlowShape, StepShape, random_flow


@dataclass
class Decision:
    ok: bool
    value: int


class NotYet(Exception):
    """What an attempt raises that is to fail."""


def declare(shape: FlowShape) -> Flow[Any, Any]:
    """Declare the flow of a shape."""
    flow: Flow[Any, Any] = Flow(shape.name, input=int)
    for step in shape.steps:
        options: dict[str, Any] = {
            "after": list(step.after),
            "max_retries": step.max_retries,
            "backoff": (0.0, 0.01),
            "max_lost": 1000,
            "on_exhausted": step.on_exhausted,
            "may_skip": step.may_skip,
        }
        if step.condition is not None:
            options |= {"condition": step.condition, "on_unmet": step.on_unmet}
        if step.has_signal:
            options["signal"] = Decision
        flow.step(name=step.name, **options)(handler_of(step))
    return flow


def handler_of(step: StepShape) -> Callable[..., Any]:
    """A handler with the parameters that the step needs, by its signature."""

    def run(**given: Any) -> int:
        if _failures_so_far(step, given["ctx"]) < step.failures:
            raise NotYet
        decision = given.get("signal")
        outputs = {need.step: _plain(given[need.step]) for need in step.needs}
        value = step.value(given["input"], outputs, None if decision is None else {"value": decision.value})
        if step.may_skip and value % SKIP_MULTIPLES_OF == 0:
            raise Skip("a multiple")
        return value

    async def run_async(**given: Any) -> int:
        return await sync_to_async(run)(**given)

    handler = run_async if step.is_async else run
    annotations: dict[str, Any] = {"input": int, "ctx": StepContext}
    annotations |= {need.step: Optional[int] if need.is_optional else int for need in step.needs}
    annotations |= {"signal": Decision} if step.has_signal else {}
    handler.__name__ = handler.__qualname__ = step.name
    by_name = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, by_name, annotation=kind) for name, kind in annotations.items()]
    handler.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    handler.__annotations__ = {**annotations, "return": int}
    return handler


def _failures_so_far(step: StepShape, ctx: StepContext) -> int:
    """How many attempts have failed. Asked of the database: `ctx.attempt` counts lost workers too."""
    if step.failures in (0, ALWAYS):
        return 0
    return StepRun.objects.get(flow_run_id=ctx.run_id, step__name=step.name).failure_count


def _plain(value: Any) -> int | None:
    if isinstance(value, Optional):
        return value.value if value.is_set else None
    return value  # type: ignore[no-any-return]


def declared(count: int) -> dict[str, FlowShape]:
    """Declare the flows of the first seeds, by name."""
    shapes = [random_flow(seed) for seed in range(count)]
    for shape in shapes:
        declare(shape)
    return {shape.name: shape for shape in shapes}


# Workers import this module: the environment says how many flows they serve.
SHAPES = declared(int(os.environ.get("ORACLE_FLOWS", "0")))
