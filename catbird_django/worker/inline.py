"""Inline steps: small pure functions that run in memory, right after the step whose output they take (F6).

What is to be run is planned before anything is: which inline steps follow, in what order, and who comes after them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from catbird_django.codec import Codec
from catbird_django.definitions.flow import FlowDefinition
from catbird_django.engine.items import ItemOutput
from catbird_django.engine.steps import Claim, StepClaim
from catbird_django.engine.tasks import JsonText
from catbird_django.worker.step_arguments import Fill, Given, fills_of

logger = logging.getLogger("catbird.worker")


class CompletionPlan(NamedTuple):
    """What follows from the completion of a step."""

    in_memory: tuple[str, ...]
    """The inline steps that are run together with it, each after the one whose output it takes."""
    frontier: tuple[str, ...]
    """The steps that come after any of these and are left to the database."""


def plan_completion(flow: FlowDefinition, completed: str, *, known: Collection[str]) -> CompletionPlan:
    """Plan what follows from the completion of a step, where these inline steps can be run."""
    followers = _followers(flow.graph)
    in_memory: list[str] = []
    frontier: dict[str, None] = {}
    left = [completed]
    while left:
        for name in followers[left.pop(0)]:
            if flow.steps[name].is_inline and name in known:
                in_memory.append(name)
                left.append(name)
            else:
                frontier[name] = None
    return CompletionPlan(tuple(in_memory), tuple(frontier))


def _followers(graph: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {name: [other for other, needed in graph.items() if name in needed] for name in graph}


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineStep:
    """An inline step with everything needed to call it."""

    name: str
    parent: str
    """The step whose output it takes."""
    function: Callable[..., Any]
    fills: tuple[tuple[str, Fill], ...]
    output_codec: Codec[Any]

    def run(self, claim: StepClaim, taken: JsonText, *, max_payload: int) -> JsonText:
        """Call it with what its parent returned; return what it returns, both as JSON text."""
        given = Given(claim, _no_items, {self.parent: taken})
        value = self.function(**{name: fill(given) for name, fill in self.fills})
        return self.output_codec.encode(value, name="output", max_bytes=max_payload)


def _no_items(step_run_id: int, *, after: int, limit: int) -> Sequence[ItemOutput]:  # noqa: ARG001
    raise AssertionError("an inline step takes no output of a map")


def inline_steps_after(completed: str, flow: FlowDefinition) -> tuple[InlineStep, ...]:
    """The inline steps that run together with a step, in order."""
    plan = plan_completion(flow, completed, known=flow.steps)
    return tuple(_inline_step(name, flow) for name in plan.in_memory)


def _inline_step(name: str, flow: FlowDefinition) -> InlineStep:
    step = flow.steps[name]
    return InlineStep(
        name=name,
        parent=step.dependencies[0].step,
        function=step.handler,
        fills=fills_of(step, flow),
        output_codec=step.output_codec,
    )


def run_inline(
    steps: Iterable[InlineStep], claim: Claim, completed: str, output: JsonText, *, max_payload: int
) -> tuple[tuple[str, JsonText], ...]:
    """Run what can be run of these, given what the step before them returned; return the outputs by name.

    One that raises is left out, and what hangs on it: the database queues it like any step.
    """
    assert isinstance(claim, StepClaim)  # noqa: S101 - for the type checker: only steps have inline steps after them
    outputs = {completed: output}
    for step in steps:
        if step.parent not in outputs:
            continue
        try:
            outputs[step.name] = step.run(claim, outputs[step.parent], max_payload=max_payload)
        except BaseException as error:  # noqa: BLE001 - whatever it raises, its predecessor has completed
            details = {"step": step.name, "after": completed, "run_id": claim.run_id, "error": type(error).__name__}
            logger.warning("inline step raised, it is queued", extra=details)
    del outputs[completed]
    return tuple(outputs.items())
