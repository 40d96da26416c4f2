"""Finds everything that is wrong with a flow as a whole: its graph, and the types between its steps (F2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from catbird_django.codec import codec_for
from catbird_django.definitions.condition_paths import fields_of, known_names
from catbird_django.definitions.conditions import Condition
from catbird_django.definitions.flow_types import fits, is_unstated
from catbird_django.definitions.graph import find_cycles
from catbird_django.definitions.item_checks import (
    find_item_faults,
    find_list_faults,
    find_reduce_faults,
    gives,
    lacks_errors,
)
from catbird_django.definitions.parameters import INPUT, Argument, Source, WhenMissing
from catbird_django.definitions.problems import Problem, ProblemKind, suggest
from catbird_django.definitions.signal_checks import find_signal_faults
from catbird_django.definitions.step import StepDefinition
from catbird_django.definitions.step_kinds import StepKind
from catbird_django.definitions.type_names import type_name
from catbird_django.errors import DefinitionError

if TYPE_CHECKING:
    from catbird_django.definitions.flow import FlowDefinition


def find_problems(flow: FlowDefinition) -> list[Problem]:
    """Find everything that is wrong, step by step in the order of definition, then with the whole."""
    if not flow.steps:
        return [Problem(flow.location, f"flow {flow.name!r} has no step: declare one with @….step")]
    found: list[Problem] = []
    for step in flow.steps.values():
        found += [Problem(step.location, fault) for fault in _needed_faults(step, flow)]
        found += [Problem(step.location, fault, ProblemKind.TYPES) for fault in _type_faults(step, flow)]
    found += _cycles(flow)
    found += _output_problems(flow)
    found += _input_problems(flow)
    return found


def _needed_faults(step: StepDefinition, flow: FlowDefinition) -> Iterator[str]:
    others = flow.steps.keys() - {step.name}
    for needed in (dependency.step for dependency in step.dependencies):
        if needed == step.name:
            yield f"{step.label} depends on itself"
        elif needed not in flow.steps:
            hint = suggest(needed, others)
            yield f"{step.label} needs {needed!r}, but flow {flow.name!r} has no such step{hint}"


def _cycles(flow: FlowDefinition) -> Iterator[Problem]:
    without_selfish = {name: [one for one in needed if one != name] for name, needed in flow.graph.items()}
    for cycle in find_cycles(without_selfish):
        circle = " → ".join([*cycle, cycle[0]])
        yield Problem(flow.steps[cycle[0]].location, f"the steps need each other in a circle: {circle}")


def _output_problems(flow: FlowDefinition) -> Iterator[Problem]:
    for name in flow.stated_output:
        if name not in flow.steps:
            hint = suggest(name, flow.steps)
            yield Problem(flow.location, f"output of flow {flow.name!r} names {name!r}, which is no step of it{hint}")


def _input_problems(flow: FlowDefinition) -> Iterator[Problem]:
    try:
        codec_for(flow.input_type)
    except DefinitionError as error:
        yield Problem(flow.location, f"input of flow {flow.name!r}: {error}", ProblemKind.TYPES)


def _type_faults(step: StepDefinition, flow: FlowDefinition) -> Iterator[str]:
    try:
        arguments = step.arguments
    except DefinitionError as error:
        yield str(error)
        return
    yield from _unusable(step.output_type, f"output of {step.label}")
    if step.signal is not None:
        yield from find_signal_faults(step.label, step.signal)
    for argument in arguments:
        if argument.parameter.source is not Source.CONTEXT:
            yield from _unusable(argument.stored_type, f"parameter {argument.parameter.name!r} of {step.label}")
        yield from _argument_faults(argument, step, flow)
    if step.kind is StepKind.REDUCE:
        yield from find_reduce_faults(step)
    if step.condition is not None:
        yield from _condition_faults(step, step.condition, flow)


def _condition_faults(step: StepDefinition, condition: Condition, flow: FlowDefinition) -> Iterator[str]:
    for field, (root, *path) in fields_of(condition.tree):
        try:
            annotation = _type_of_root(str(root), step, flow)
            names = known_names(codec_for(annotation).json_schema(), path)
        except DefinitionError:
            continue  # said where that type is
        if names is not None:
            missing = f"{type_name(annotation)} has no such field{_meant(path, names)}"
            yield f"condition of {step.label} looks at {field}, but {missing}"


def _type_of_root(root: str, step: StepDefinition, flow: FlowDefinition) -> Any:
    if root == Source.INPUT:
        return flow.input_type
    if root == Source.SIGNAL:
        return Any if step.signal is None else step.signal.parameter_type
    return flow.steps[root].result_type if root in flow.steps else Any


def _meant(path: list[str | int], names: list[str]) -> str:
    return next(filter(None, (suggest(one, names) for one in path if isinstance(one, str) and one not in names)), "")


def _unusable(annotation: Any, what: str) -> Iterator[str]:
    try:
        codec_for(annotation)
    except DefinitionError as error:
        yield f"{what}: {error}"


def _argument_faults(argument: Argument, step: StepDefinition, flow: FlowDefinition) -> Iterator[str]:
    taken = f"{step.label} takes {argument.label}"
    if argument.when_missing is WhenMissing.OPTIONAL and argument.parameter.source is not Source.STEP:
        name = type_name(argument.value_type)
        yield f"{taken}, but only the output of a step can be missing: write {name} or {name} | None"
        return
    match argument.parameter.source:
        case Source.INPUT if not fits(flow.input_type, argument.annotation):
            yield f"{taken}, but the input of flow {flow.name!r} is {type_name(flow.input_type)}: {_INPUT_HINT}"
        case Source.SIGNAL if step.signal is not None and not fits(step.signal.parameter_type, argument.annotation):
            quorum = f" (of a quorum of {step.signal.quorum})" if step.signal.quorum > 1 else ""
            yield f"{taken}, but its signal is {type_name(step.signal.parameter_type)}{quorum}"
        case Source.ITEM if step.over == INPUT or (step.over in flow.steps and step.over != step.name):
            yield from find_item_faults(argument, step, flow)
        case Source.STEP if argument.parameter.step in flow.steps and argument.parameter.step != step.name:
            yield from _taken_faults(argument, step, flow)


_INPUT_HINT = "let all steps take the same, or say which it is with Flow(…, input=…)"


def _taken_faults(argument: Argument, step: StepDefinition, flow: FlowDefinition) -> Iterator[str]:
    producer = flow.steps[argument.parameter.step]
    taken = f"{step.label} takes {argument.label}"
    reasons = flow.skips[producer.name].alone
    if reasons and not argument.is_optional:
        name = "…" if is_unstated(argument.annotation) else type_name(argument.annotation)
        yield (
            f"{taken}, but {producer.name!r} may be skipped ({', '.join(reasons)}): "
            f"annotate it as Optional[{name}] or {name} | None"
        )
    yield from find_list_faults(argument, step, producer)
    try:
        produced = producer.result_type
    except DefinitionError:
        return  # said where the producer is
    if not fits(produced, argument.stored_type) and not lacks_errors(argument, producer):
        yield f"{taken}, but {producer.name!r} {gives(producer)} {type_name(produced)}"
