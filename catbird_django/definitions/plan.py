"""A flow as the database stores it: plain values, in the order in which the steps can run (F3, F21)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from catbird_django.codec import codec_for
from catbird_django.codec.schema import LABELS
from catbird_django.definitions.checked import in_seconds
from catbird_django.definitions.parameters import INPUT, Source
from catbird_django.definitions.step import Dependency, StepDefinition
from catbird_django.definitions.step_kinds import StepKind

if TYPE_CHECKING:
    from catbird_django.definitions.flow import FlowDefinition

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyPlan:
    """That a step needs another one to have ended."""

    step: str
    step_position: int
    """The position of the step that is needed; always smaller than that of the step that needs it."""
    parameter: str | None
    """The parameter that takes the output; None if only the order counts."""
    argument_position: int | None
    """The place of that parameter among all of the handler's, from 1; None if only the order counts."""
    is_optional: bool
    """Whether the step runs although the other was skipped; always so if only the order counts."""
    is_order_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """A step. Durations are in seconds."""

    position: int
    """From 1, in an order in which every step comes after what it needs."""
    name: str
    kind: str
    """"step", "map" or "reduce"."""
    description: str
    handler: str
    dependencies: tuple[DependencyPlan, ...]
    dependency_count: int
    required_count: int
    """Dependencies, and one for the signal."""
    takes_input: bool
    """Whether its handler, or that of an inline step which runs with it, takes the flow's input as a whole."""
    takes_signal: bool
    takes_context: bool
    condition: dict[str, Any] | None
    """{"text", "tree"}."""
    condition_roots: tuple[str, ...]
    """What its fields begin with, sorted: "input", "signal" or steps, also such that only the order counts of."""
    condition_needs_signal: bool
    signal: dict[str, Any] | None
    signal_schema: Schema | None
    """Of one delivery, also with a quorum."""
    may_skip: bool
    on_unmet: str
    on_exhausted: str
    on_cancel: str
    is_final: bool
    max_retries: int
    max_lost: int | None
    """None: as the settings say."""
    delay: float | None
    deadline: float | None
    options: dict[str, Any]
    """How workers run it: timeout, isolation, concurrency, batch_size; without what is left at its default."""
    argument_schemas: dict[str, Schema]
    """By parameter, without the context."""
    output_schema: Schema
    """As others see it: of a map, a list."""
    over: str = ""
    """What a map or reduce goes over: a step, or "input"; empty for a plain step."""
    initial: Any = None
    """What a reduce starts with, as JSON."""
    max_failed_items: int | None = 0
    """How many items of a map may fail before it fails; None for all of them."""
    takes_lists: bool = False
    """Whether its handler takes the outputs of a map, as a whole or, in a reduce, one after the other."""
    is_inline: bool = False
    is_atomic: bool = False
    fingerprint: str = ""
    """Hash of how its handler is called: what can run it in one version can run it in another with the same (F21)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPlan:
    """A flow. Durations are in seconds."""

    name: str
    description: str
    queue: str
    on_fail: str
    deadline: float | None
    retention: float | None
    outputs: tuple[str, ...]
    """The output of the first of these that completed is the flow's."""
    output_required: bool
    final_count: int
    """How many steps are final: what the end of a run requires."""
    input_schema: Schema
    output_schema: Schema
    steps: tuple[StepPlan, ...]

    def step(self, name: str) -> StepPlan:
        """The step of that name."""
        return next(step for step in self.steps if step.name == name)

    def as_json(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    def fingerprint(self) -> str:
        """Hash of all of it. Those of its steps say nothing that it does not have already."""
        return _hash_of(asdict(replace(self, steps=tuple(replace(step, fingerprint="") for step in self.steps))))


def _hash_of(shape: Any) -> str:
    """Hash, except for the labels of choices: they are in whatever language is active."""
    return hashlib.sha256(json.dumps(_without_labels(shape), sort_keys=True).encode()).hexdigest()


def _call_of(step: StepPlan) -> dict[str, Any]:
    """What a handler must agree to with whoever calls it."""
    return {
        "name": step.name,
        "kind": step.kind,
        "over": step.over,
        "is_atomic": step.is_atomic,
        "dependencies": [
            [one.step, one.parameter, one.is_optional] for one in step.dependencies if not one.is_order_only
        ],
        "takes": [step.takes_input, step.takes_signal, step.takes_context],
        "signal": step.signal_schema,
        "arguments": step.argument_schemas,
        "output": step.output_schema,
    }


def _without_labels(value: Any) -> Any:
    match value:
        case dict():
            return {key: _without_labels(part) for key, part in value.items() if key != LABELS}
        case list() | tuple():
            return [_without_labels(part) for part in value]
        case _:
            return value


def plan_of(flow: FlowDefinition) -> FlowPlan:
    """Make the plan of a flow that has been checked."""
    positions = {step.name: position for position, step in enumerate(flow.order, start=1)}
    return FlowPlan(
        name=flow.name,
        description=flow.description,
        queue=flow.queue,
        on_fail=flow.on_fail,
        deadline=in_seconds(flow.deadline),
        retention=in_seconds(flow.retention),
        outputs=tuple(flow.outputs),
        output_required=flow.output_required,
        final_count=len(flow.final_steps),
        input_schema=flow.input_codec.json_schema(),
        output_schema=flow.output_codec.json_schema(),
        steps=tuple(_plan_of_step(step, flow, positions) for step in flow.order),
    )


def _plan_of_step(step: StepDefinition, flow: FlowDefinition, positions: dict[str, int]) -> StepPlan:
    sources = {parameter.source for parameter in step.parameters}
    plan = StepPlan(
        position=positions[step.name],
        name=step.name,
        kind=step.kind.value,
        description=step.description,
        handler=step.path,
        dependencies=tuple(_plan_of_dependency(one, step, positions) for one in step.dependencies),
        dependency_count=len(step.dependencies),
        required_count=len(step.dependencies) + (step.signal is not None),
        takes_input=_takes_input(step, flow),
        takes_signal=Source.SIGNAL in sources,
        takes_context=Source.CONTEXT in sources,
        condition=None if step.condition is None else step.condition.as_json(),
        condition_roots=tuple(sorted(step.condition_roots)),
        condition_needs_signal=Source.SIGNAL in step.condition_roots,
        signal=None if step.signal is None else step.signal.as_json(),
        signal_schema=None if step.signal is None else codec_for(step.signal.type).json_schema(),
        may_skip=step.may_skip,
        on_unmet=step.on_unmet,
        on_exhausted=step.on_exhausted,
        on_cancel=step.on_cancel,
        is_final=step.name in flow.final_steps,
        max_retries=step.retry.max_retries,
        max_lost=step.max_lost,
        delay=in_seconds(step.delay),
        deadline=in_seconds(step.deadline),
        options=step.how_to_run.as_json(),
        argument_schemas=_argument_schemas(step),
        output_schema=codec_for(step.result_type).json_schema(),
        over=step.over,
        initial=json.loads(step.initial_text) if step.kind is StepKind.REDUCE else None,
        max_failed_items=step.max_failed_items,
        takes_lists=_takes_lists(step, flow),
        is_inline=step.is_inline,
        is_atomic=step.is_atomic,
    )
    return replace(plan, fingerprint=_hash_of(_call_of(plan)))


def _takes_input(step: StepDefinition, flow: FlowDefinition) -> bool:
    """Whether whoever runs the step must have the input: the items of a map get theirs from the database."""
    left = [step.name]
    while left:
        one = flow.steps[left.pop()]
        reduces_input = one.kind is StepKind.REDUCE and one.over == INPUT
        if reduces_input or any(parameter.source is Source.INPUT for parameter in one.parameters):
            return True
        left += flow.inline_followers[one.name]
    return False


def _takes_lists(step: StepDefinition, flow: FlowDefinition) -> bool:
    """Whether it takes the outputs of a map; an item of a map over another takes one of them alone."""
    return any(
        flow.steps[parameter.step].kind is StepKind.MAP
        for parameter in step.parameters
        if parameter.step and not (step.kind is StepKind.MAP and parameter.source is Source.ITEM)
    )


def _argument_schemas(step: StepDefinition) -> dict[str, Schema]:
    return {
        argument.parameter.name: codec_for(argument.stored_type).json_schema()
        for argument in step.arguments
        if argument.parameter.source is not Source.CONTEXT
    }


def _plan_of_dependency(dependency: Dependency, step: StepDefinition, positions: dict[str, int]) -> DependencyPlan:
    parameter = dependency.parameter
    return DependencyPlan(
        step=dependency.step,
        step_position=positions[dependency.step],
        parameter=None if parameter is None else parameter.name,
        argument_position=None if parameter is None else step.parameters.index(parameter) + 1,
        is_optional=parameter is None or step.argument(parameter).is_optional,
        is_order_only=parameter is None,
    )
