"""F2, F10: a condition may look only at what the type of a value can have."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, NamedTuple, NotRequired

import msgspec
import pydantic
import pytest
from typing_extensions import TypedDict

from catbird_django.codec import codec_for
from catbird_django.definitions.condition_paths import fields_of, known_names
from catbird_django.definitions.conditions import parse_condition


@dataclass
class Line:
    price: float


@dataclass
class Order:
    id: int
    lines: list[Line]
    parent: Order | None = None
    tags: dict[str, Line] = field(default_factory=dict)
    extra: Any = None
    notes: dict[str, Any] = field(default_factory=dict)


class Loose(pydantic.BaseModel, extra="allow"):
    id: int


class Aliased(pydantic.BaseModel):
    id: int = pydantic.Field(alias="orderId")


class Partial(TypedDict):
    id: int
    note: NotRequired[str]


class Point(NamedTuple):
    x: int
    y: int


class Packed(msgspec.Struct):
    line: Line


class Color(Enum):
    RED = "red"


def can_be_there(annotation: Any, path: str) -> bool:
    [(_, (_, *steps))] = fields_of(parse_condition(f"input{path} exists", roots={"input"}).tree)
    return known_names(codec_for(annotation).json_schema(), steps) is None


@pytest.mark.parametrize(
    ("annotation", "path"),
    [
        (int, ""),
        (Any, ".a[0].b"),
        (dict, ".a.b"),
        (list, "[0].a"),
        (Order, ".id"),
        (Order, ".lines[3].price"),
        (Order, ".parent.parent.parent.id"),
        (Order, '.tags["any key"].price'),
        (Order, ".extra.a[0].b"),
        (Order, ".notes.a.b"),
        (Order | None, ".id"),
        (Order | int, ".id"),
        (list[Order], "[0].id"),
        (tuple[int, Line], "[1].price"),
        (tuple[Line, ...], "[7].price"),
        (Loose, ".anything.at.all"),
        (Aliased, ".orderId"),
        (Partial, ".note"),
        (Point, "[1]"),
        (Packed, ".line.price"),
    ],
)
def test_what_may_be_there_is_accepted(annotation: Any, path: str) -> None:
    assert can_be_there(annotation, path)


@pytest.mark.parametrize(
    ("annotation", "path"),
    [
        (int, ".a"),
        (int, "[0]"),
        (str, "[0]"),
        (None, ".a"),
        (Color, ".value"),
        (Literal["a", 1], ".a"),
        (Order, ".total"),
        (Order, "[0]"),
        (Order, ".id.b"),
        (Order, ".lines.price"),
        (Order, ".lines[0].total"),
        (Order, ".parent.parent.total"),
        (Order, ".tags.a.total"),
        (Order | int, ".total"),
        (list[Order], ".id"),
        (tuple[int, Line], "[2]"),
        (tuple[int, Line], "[0].price"),
        (Aliased, ".id"),
        (Partial, ".notes"),
        (Point, ".x"),
        (Packed, ".line.total"),
    ],
)
def test_what_can_never_be_there_is_refused(annotation: Any, path: str) -> None:
    assert not can_be_there(annotation, path)


def test_the_names_that_are_there_instead_are_known() -> None:
    schema = codec_for(Order).json_schema()

    assert known_names(schema, ["lines", 0, "prize"]) == ["price"]
