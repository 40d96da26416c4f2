"""What can be wrong between a list and who takes its items: maps, reduces, and the steps behind a map (F14, F15)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from catbird_django.definitions.flow_types import fits, is_unstated
from catbird_django.definitions.item_types import ItemError, Stream, allows_errors, element_of, list_of
from catbird_django.definitions.parameters import INPUT, Argument, Source
from catbird_django.definitions.step import StepDefinition
from catbird_django.definitions.step_kinds import StepKind
from catbird_django.definitions.type_names import type_name
from catbird_django.errors import DefinitionError, PayloadError

if TYPE_CHECKING:
    from catbird_django.definitions.flow import FlowDefinition


def find_item_faults(item: Argument, step: StepDefinition, flow: FlowDefinition) -> Iterator[str]:
    """Say what is wrong between a map or reduce and the list that it goes over, a step of the flow or its input."""
    producer = None if step.over == INPUT else flow.steps[step.over]
    try:
        source = flow.input_type if producer is None else producer.result_type
    except DefinitionError:
        return  # said where the producer is
    whose = f"the input of flow {flow.name!r} is" if producer is None else f"{producer.name!r} {gives(producer)}"
    if not fits(source, list_of(Any)):
        yield f"{step.label} goes over {step.over!r}, but {whose} {type_name(source)}, which is no list"
    elif producer is not None and lacks_errors(item, producer):
        yield _errors_fault(item, step, producer)
    elif not fits(source, list_of(item.value_type)):
        yield f"{step.label} takes {item.label}, but {whose} {type_name(source)}"
    if producer is not None and producer.kind is StepKind.MAP and _is_far_away(step) and step.kind is StepKind.REDUCE:
        yield f"{step.label} goes over the items of {producer.name!r} as they are read, {_TOO_FAR}"


def find_reduce_faults(step: StepDefinition) -> Iterator[str]:
    """Say whether a reduce cannot take what it starts with, or what it returned for the item before."""
    acc = step.argument_from(Source.ACC)
    if acc is not None and not fits(step.output_type, acc.value_type):
        yield f"{step.label} takes {acc.label}, but returns {type_name(step.output_type)}"
        return
    try:
        _ = step.initial_text
    except PayloadError as error:
        yield f"{step.label} cannot start with what it is given, and return it if there are no items: {error}"
    except DefinitionError:
        return  # said of the type itself


def find_list_faults(argument: Argument, step: StepDefinition, producer: StepDefinition) -> Iterator[str]:
    """Say what is wrong with how a step takes the output of another as a stream or list, types of items aside."""
    stream = argument.stream
    taken = f"{step.label} takes {argument.label}"
    if producer.kind is not StepKind.MAP:
        if stream is not None:
            yield f"{taken}, but {producer.name!r} is no map, so there is nothing to stream: write {_list(stream)}"
        return
    if step.is_inline:
        yield (
            f"{step.label} is inline, but {producer.name!r} is a map: whoever runs one of its items does not have the "
            f"others; leave out inline"
        )
    if lacks_errors(argument, producer):
        yield _errors_fault(argument, step, producer)
    if stream is not None:
        yield from _stream_faults(taken, stream, step)


def _stream_faults(taken: str, stream: Stream, step: StepDefinition) -> Iterator[str]:
    if _is_far_away(step):
        yield f"{taken} as it is read, {_TOO_FAR}; or write {_list(stream)}"
    elif stream.is_async and not step.is_async:
        yield f"{taken}, but it is not async: write Iterable[{type_name(stream.element)}], or {_list(stream)}"
    elif step.is_async and not stream.is_async:
        yield f"{taken}, but it is async: write AsyncIterable[{type_name(stream.element)}], or {_list(stream)}"


_TOO_FAR = 'but runs in a process of its own, which does not read the database for it: leave out isolation="process"'


def _is_far_away(step: StepDefinition) -> bool:
    return step.how_to_run.isolation == "process"


def lacks_errors(argument: Argument, producer: StepDefinition) -> bool:
    """Whether a parameter takes the items of a map as if none could have failed, although the map goes on without."""
    if producer.kind is not StepKind.MAP or not producer.keeps_errors:
        return False
    element = _element(argument)
    return not is_unstated(element) and not allows_errors(element)


def _errors_fault(argument: Argument, step: StepDefinition, producer: StepDefinition) -> str:
    """Say what to write instead of a type without the errors."""
    wanted = f"{type_name(_element(argument))} | {ItemError.__name__}"
    is_item = argument.parameter.source is Source.ITEM
    return (
        f"{step.label} takes {argument.label}, but {producer.name!r} leaves errors in the place of items that failed: "
        f"{'write' if is_item else 'the items are'} {wanted}"
    )


def _element(argument: Argument) -> Any:
    return argument.value_type if argument.parameter.source is Source.ITEM else element_of(argument.stored_type)


def _list(stream: Stream) -> str:
    return f"list[{type_name(stream.element)}]"


def gives(producer: StepDefinition) -> str:
    """How a step comes by its output, for messages."""
    return "gives" if producer.kind is StepKind.MAP else "returns"
