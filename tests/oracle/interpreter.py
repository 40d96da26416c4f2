"""What must come of a random flow, in plain Python: the steps one after the other, and no database."""

from __future__ import annotations

from dataclasses import dataclass, field

from catbird_django.definitions.conditions import ConditionTypeError, evaluate, parse_condition
from tests.oracle.shapes import FlowShape, StepShape

SKIP_MULTIPLES_OF = 5  # what a handler that may skip does with such a value


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How a step must end: completed, skipped, failed; or never, because something before it failed."""

    status: str
    output: int | None = None
    reason: str = ""


@dataclass(slots=True)
class Expectation:
    """How a run must end. Of several steps that fail, any may be the first."""

    steps: dict[str, StepEnd] = field(default_factory=dict)

    @property
    def failing(self) -> set[str]:
        return {name for name, end in self.steps.items() if end.status == "failed"}

    @property
    def status(self) -> str:
        return "failed" if self.failing else "completed"

    def output(self, shape: FlowShape) -> int | None:
        """The output of the first final step that completed, in the order of definition."""
        ends = [self.steps[name] for name in shape.final_steps]
        return next((end.output for end in ends if end.status == "completed"), None)


def interpret(shape: FlowShape) -> Expectation:
    """Say how each step of the flow must end."""
    expected = Expectation()
    for step in shape.steps:
        expected.steps[step.name] = _end_of(step, shape, expected.steps)
    return expected


def _end_of(step: StepShape, shape: FlowShape, ends: dict[str, StepEnd]) -> StepEnd:
    if any(ends[name].status in ("failed", "never") for name in step.dependencies):
        return StepEnd("never")
    if any(ends[need.step].status == "skipped" and not need.is_optional for need in step.needs):
        return StepEnd("skipped", reason="dependency")
    decision = shape.decisions.get(step.name)
    if step.condition is not None:
        unmet = _unmet(step, shape, ends, decision)
        if unmet is not None:
            return unmet
    if step.failures > step.max_retries:
        return StepEnd("failed") if step.on_exhausted == "fail" else StepEnd("skipped", reason="exhausted")
    outputs = {need.step: ends[need.step].output for need in step.needs}
    value = step.value(shape.input, outputs, decision)
    if step.may_skip and value % SKIP_MULTIPLES_OF == 0:
        return StepEnd("skipped", reason="handler")
    return StepEnd("completed", value)


def _unmet(
    step: StepShape, shape: FlowShape, ends: dict[str, StepEnd], decision: dict[str, int | bool] | None
) -> StepEnd | None:
    values: dict[str, object] = {
        name: ends[name].output for name in step.dependencies if ends[name].status == "completed"
    }
    values |= {"input": shape.input} | ({"signal": decision} if decision is not None else {})
    roots = {"input", "signal", *step.dependencies}
    try:
        is_met = evaluate(parse_condition(step.condition or "", roots=roots).tree, values)
    except ConditionTypeError:
        return StepEnd("failed")
    if is_met:
        return None
    return StepEnd("failed") if step.on_unmet == "fail" else StepEnd("skipped", reason="condition")
