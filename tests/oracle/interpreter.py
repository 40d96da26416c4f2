"""What must come of a random flow, in plain Python: the steps one after the other, and no database."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from catbird_django.definitions.conditions import ConditionTypeError, evaluate, parse_condition
from tests.oracle.shapes import Decision, FlowShape, Output, StepShape

SKIP_MULTIPLES_OF = 5  # what a handler that may skip does with such a value
END_EARLY_AT_MULTIPLES_OF = 3  # what one that may end the run early does with such a value
FAILURE = "NotYet"  # the class of what fails


def fails_at(value: int) -> bool:
    """Whether an item of a map that has failures is one that fails."""
    return value % 4 == 1


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How a step must end: completed, skipped, failed, or early, with the run; or never, because of one before it."""

    status: str
    output: Output | None = None
    reason: str = ""
    early_outputs: frozenset[int] = frozenset()
    """What the output of the run may be if this step ends it."""


@dataclass(slots=True)
class Expectation:
    """How a run must end. Of several steps that fail, or end it early, any may be the first."""

    steps: dict[str, StepEnd] = field(default_factory=dict)

    @property
    def failing(self) -> set[str]:
        return {name for name, end in self.steps.items() if end.status == "failed"}

    @property
    def early(self) -> dict[str, frozenset[int]]:
        return {name: end.early_outputs for name, end in self.steps.items() if end.status == "early"}

    @property
    def statuses(self) -> set[str]:
        possible = {"failed"} if self.failing else set()
        return possible | {"completed"} if self.early or not possible else possible

    def output(self, shape: FlowShape) -> Output | None:
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
    if any(ends[name].status in ("failed", "early", "never") for name in step.dependencies):
        return StepEnd("never")
    if any(ends[need.step].status == "skipped" and not need.is_optional for need in step.needs):
        return StepEnd("skipped", reason="dependency")
    decision = shape.decisions.get(step.name)
    if step.condition is not None:
        unmet = _unmet(step, shape, ends, decision)
        if unmet is not None:
            return unmet
    value = step.value(shape.input, {need.step: ends[need.step].output for need in step.taken}, decision)
    if step.kind == "step":
        return _end_of_plain(step, value)
    goes_over: Any = shape.input if step.over == "input" else ends[step.over].output
    return (_end_of_map if step.kind == "map" else _end_of_reduce)(step, value, goes_over)


def _end_of_plain(step: StepShape, value: int) -> StepEnd:
    if step.fails_for_good:
        return _exhausted(step)
    if step.may_skip and value % SKIP_MULTIPLES_OF == 0:
        return StepEnd("skipped", reason="handler")
    if step.ends_early and value % END_EARLY_AT_MULTIPLES_OF == 0:
        return StepEnd("early", early_outputs=frozenset([value]))
    return StepEnd("completed", step.output(value))


def _end_of_map(step: StepShape, value: int, goes_over: list[Any]) -> StepEnd:
    outputs: list[Any] = [step.value_of_item(value, item) for item in goes_over]
    if step.ends_early and (early := {one for one in outputs if one % END_EARLY_AT_MULTIPLES_OF == 0}):
        return StepEnd("early", early_outputs=frozenset(early))
    failing = [place for place, one in enumerate(outputs) if step.fails_for_good and fails_at(one)]
    if step.tolerated is not None and len(failing) > step.tolerated:
        return _exhausted(step)
    for place in failing:
        outputs[place] = {"index": place, "type": FAILURE, "message": ""}
    return StepEnd("completed", outputs)


def _end_of_reduce(step: StepShape, value: int, goes_over: list[Any]) -> StepEnd:
    if goes_over and step.fails_for_good:  # without items nothing is called
        return _exhausted(step)
    acc = 0
    for item in goes_over:
        acc = step.added(value, acc, item)
    return StepEnd("completed", acc)


def _exhausted(step: StepShape) -> StepEnd:
    return StepEnd("failed") if step.on_exhausted == "fail" else StepEnd("skipped", reason="exhausted")


def _unmet(step: StepShape, shape: FlowShape, ends: dict[str, StepEnd], decision: Decision | None) -> StepEnd | None:
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
