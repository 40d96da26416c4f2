"""What the parameters of steps' handlers are given of a claim (F1, F11, F14a)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from json import JSONDecoder
from typing import Any

from catbird_django.codec import codec_for
from catbird_django.definitions.flow import FlowDefinition
from catbird_django.definitions.item_types import Stream, without_error
from catbird_django.definitions.parameters import Argument, Source
from catbird_django.definitions.step import StepDefinition
from catbird_django.definitions.step_kinds import StepKind
from catbird_django.engine.items import ItemClaim
from catbird_django.engine.steps import StepClaim
from catbird_django.errors import PayloadError
from catbird_django.worker.item_lists import (
    AsyncItemStream,
    ItemStream,
    Pages,
    ReadItems,
    decode_items,
    error_from,
    whole_list,
)

_decode_at = JSONDecoder().raw_decode
_space = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class Given:
    """What a claim brings, taken apart."""

    claim: StepClaim | ItemClaim
    read_items: ReadItems
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Of steps, by name, as JSON text."""
    lists: Mapping[str, int] = field(default_factory=dict)
    """The step runs of maps, by name."""


Fill = Callable[[Given], Any]


def take_apart(claim: StepClaim | ItemClaim, read_items: ReadItems) -> Given:
    """Take apart what a claim brings."""
    outputs = parts_of(claim.outputs) if claim.outputs else {}
    lists = json.loads(claim.lists) if claim.lists else {}
    return Given(claim, read_items, outputs, lists)


def parts_of(text: str) -> dict[str, str]:
    """The values of a JSON object by key, each as the text it has there: types are read from text, exactly."""
    parts: dict[str, str] = {}
    place = 1
    while text[place] != "}":
        key, place = _decode_at(text, place)
        place += 2  # PostgreSQL writes ": ", and ", " between
        _, end = _decode_at(text, place)
        parts[key] = text[place:end]
        place = end + 2 if text[end] == "," else end
    return parts


def fills_of(step: StepDefinition, flow: FlowDefinition) -> tuple[tuple[str, Fill], ...]:
    """How those parameters of a step are filled that a claim says all about, by name."""
    fills = ((argument.parameter.name, _fill_of(argument, step, flow)) for argument in step.arguments)
    return tuple((name, fill) for name, fill in fills if fill is not None)


def _fill_of(argument: Argument, step: StepDefinition, flow: FlowDefinition) -> Fill | None:
    """How a parameter is filled; None for those that somebody else fills: the context, and in a reduce each item."""
    needed = argument.parameter.step
    match argument.parameter.source:
        case Source.ITEM if step.kind is StepKind.MAP:
            return _fill_item(argument)
        case Source.CONTEXT | Source.ITEM | Source.ACC:
            return None
        case Source.STEP if flow.steps[needed].kind is StepKind.MAP:
            return _fill_list(argument)
    read = argument.reader()
    match argument.parameter.source:
        case Source.INPUT:
            return lambda given: read(given.claim.input)
        case Source.SIGNAL:
            return lambda given: read(given.claim.signal)
        case _:
            return lambda given: read(given.outputs.get(needed))


def _fill_item(argument: Argument) -> Fill:
    decode = codec_for(without_error(argument.value_type)).decode

    def fill(given: Given) -> Any:
        claim = given.claim
        assert isinstance(claim, ItemClaim)  # noqa: S101 - for the type checker: only items come to a map
        return error_from(claim.item) if claim.is_error else decode(claim.item, name="item")

    return fill


def _fill_list(argument: Argument) -> Fill:
    map_name, make = argument.parameter.step, _list_maker(argument)

    def fill(given: Given) -> Any:
        if map_name not in given.lists:
            return argument.missing()
        return argument.given(make(partial(Pages, given.read_items, given.lists[map_name])))

    return fill


def _list_maker(argument: Argument) -> Callable[[Callable[[], Pages]], Any]:
    name = argument.parameter.name
    if argument.stream is not None:
        return _stream_maker(argument.stream, name)
    make = whole_list(argument.value_type, name=name)
    return lambda open_pages: make(open_pages())


def _stream_maker(stream: Stream, name: str) -> Callable[[Callable[[], Pages]], Any]:
    decode = decode_items(stream.element, name=name)
    kind: Any = AsyncItemStream if stream.is_async else ItemStream
    begin: Any = aiter if stream.is_async else iter

    def make(open_pages: Callable[[], Pages]) -> Any:
        whole = kind(open_pages, decode)
        return begin(whole) if stream.is_iterator else whole

    return make


def elements_of(text: str, *, name: str) -> list[str]:
    """The elements of a JSON list, each as the text it has there; raise PayloadError if it is no list."""
    if not text.lstrip().startswith("["):
        raise PayloadError("expected a list to go over", path=name)
    elements: list[str] = []
    place = _after_space(text, text.index("[") + 1)
    while text[place] != "]":
        _, end = _decode_at(text, place)
        elements.append(text[place:end])
        place = _after_space(text, end)
        if text[place] == ",":
            place = _after_space(text, place + 1)
    return elements


def _after_space(text: str, place: int) -> int:
    match = _space.match(text, place)
    return match.end() if match else place
