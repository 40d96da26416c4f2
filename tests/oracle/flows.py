"""Random flows as real ones: the same shapes, with handlers that do what the shapes say."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async

from catbird_django import Flow, ItemError, Optional, Skip, StepContext, complete_early
from catbird_django.models import Item, StepRun
from tests.oracle.interpreter import END_EARLY_AT_MULTIPLES_OF, SKIP_MULTIPLES_OF, fails_at
from tests.oracle.shapes import ALWAYS, FlowShape, Output, StepShape, random_flow


@dataclass
class Decision:
    ok: bool
    value: int


class NotYet(Exception):
    """What an attempt raises that is to fail."""


def declare(shape: FlowShape) -> Flow[Any, Any]:
    """Declare the flow of a shape."""
    flow: Flow[Any, Any] = Flow(shape.name, input=_type_of_input(shape))
    for step in shape.steps:
        _declare_step(flow, step, shape)
    return flow


def _type_of_input(shape: FlowShape) -> Any:
    return list[int] if isinstance(shape.input, list) else int


def _declare_step(flow: Flow[Any, Any], step: StepShape, shape: FlowShape) -> None:
    options: dict[str, Any] = {"max_lost": 1000, "on_exhausted": step.on_exhausted}
    if step.is_inline:
        flow.step(name=step.name, inline=True, **options)(handler_of(step, shape))
        return
    options |= {"after": list(step.after), "max_retries": step.max_retries, "backoff": (0.0, 0.01)}
    if step.condition is not None:
        options |= {"condition": step.condition, "on_unmet": step.on_unmet}
    if step.has_signal:
        options["signal"] = Decision
    match step.kind:
        case "map":
            options |= {0: {}, None: {"on_item_failure": "collect"}}.get(step.tolerated, {"tolerate": step.tolerated})
            flow.map(over=step.over, name=step.name, **options)(handler_of(step, shape))
        case "reduce":
            flow.reduce(over=step.over, initial=0, name=step.name, **options)(handler_of(step, shape))
        case _:
            flow.step(name=step.name, may_skip=step.may_skip, **options)(handler_of(step, shape))


def handler_of(step: StepShape, shape: FlowShape) -> Callable[..., Any]:
    """A handler with the parameters that the step needs, by its signature."""

    def run(**given: Any) -> Any:
        if is_to_fail(step, given.get("ctx")):
            raise NotYet
        decision = given.get("signal")
        outputs = {need.step: _plain(given[need.step]) for need in step.taken}
        value = step.value(given["input"], outputs, None if decision is None else {"value": decision.value})
        return RETURNED[step.kind](step, value, given)

    async def run_async(**given: Any) -> Any:
        return await sync_to_async(run)(**given)

    handler = run_async if step.is_async else run
    annotations = {"input": _type_of_input(shape), **_parameters(step, shape)}
    returns = list[int] if step.gives_list else int
    handler.__name__ = handler.__qualname__ = step.name
    by_name = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, by_name, annotation=kind) for name, kind in annotations.items()]
    handler.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]
    handler.__annotations__ = {**annotations, "return": returns}
    return handler


def _parameters(step: StepShape, shape: FlowShape) -> dict[str, Any]:
    annotations: dict[str, Any] = {} if step.is_inline else {"ctx": StepContext}
    for need in step.taken:
        kind = _type_of(shape.step(need.step), is_streamed=not step.is_async and step.position % 2 == 0)
        annotations[need.step] = Optional[kind] if need.is_optional else kind
    if step.over:
        annotations["item"] = int if step.over == "input" else _element_of(shape.step(step.over))
    if step.kind == "reduce":
        annotations["acc"] = int
    return annotations | ({"signal": Decision} if step.has_signal else {})


def _type_of(producer: StepShape, *, is_streamed: bool) -> Any:
    if producer.kind == "map":
        return Iterable[_element_of(producer)] if is_streamed else list[_element_of(producer)]  # type: ignore[misc]
    return list[int] if producer.gives_list else int


def _element_of(producer: StepShape) -> Any:
    return int | ItemError if producer.kind == "map" and producer.tolerated != 0 else int


def _returned_by_step(step: StepShape, value: int, _: dict[str, Any]) -> Output:
    if step.may_skip and value % SKIP_MULTIPLES_OF == 0:
        raise Skip("a multiple")
    if step.ends_early and value % END_EARLY_AT_MULTIPLES_OF == 0:
        complete_early(value, step.name)
    return step.output(value)


def _returned_by_map(step: StepShape, value: int, given: dict[str, Any]) -> int:
    output = step.value_of_item(value, given["item"])
    if step.ends_early and output % END_EARLY_AT_MULTIPLES_OF == 0:
        complete_early(output, step.name)
    if step.failures and fails_at(output) and item_failures(given["ctx"]) < step.failures:
        raise NotYet
    return output


def _returned_by_reduce(step: StepShape, value: int, given: dict[str, Any]) -> int:
    return step.added(value, given["acc"], given["item"])


RETURNED = {"step": _returned_by_step, "map": _returned_by_map, "reduce": _returned_by_reduce}


def is_to_fail(step: StepShape, ctx: StepContext | None) -> bool:
    """Whether this attempt is one that fails, as the shape has it. Items are asked one by one, by their values."""
    if step.failures in (0, ALWAYS) or step.kind == "map":
        return step.failures == ALWAYS and step.kind != "map"
    if ctx is None:
        return is_run_in_memory()
    # Asked of the database: `ctx.attempt` counts lost workers too.
    return StepRun.objects.get(flow_run_id=ctx.run_id, step__name=step.name).failure_count < step.failures


def is_run_in_memory() -> bool:
    """Whether an inline step is run together with the one before it."""
    return any(frame.function == "run_inline" for frame in inspect.stack(context=0))


def item_failures(ctx: StepContext) -> int:
    """How many attempts of this item have failed."""
    return Item.objects.get(flow_run_id=ctx.run_id, step__name=ctx.step, index=ctx.index).failure_count


def _plain(value: Any) -> Any:
    if isinstance(value, Optional):
        return value.value if value.is_set else None
    return value


def declared(count: int) -> dict[str, FlowShape]:
    """Declare the flows of the first seeds, by name."""
    shapes = [random_flow(seed) for seed in range(count)]
    for shape in shapes:
        declare(shape)
    return {shape.name: shape for shape in shapes}


# Workers import this module: the environment says how many flows they serve.
SHAPES = declared(int(os.environ.get("ORACLE_FLOWS", "0")))
