"""F2: which types fit which; a pair that works is never refused, as the codec itself bears out."""

import collections
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NoReturn, TypeVar, Union
from uuid import UUID

import pydantic
import pytest
from typing_extensions import TypeAliasType, TypedDict

from catbird_django.codec import codec_for
from catbird_django.definitions.flow_types import fits, narrowest
from catbird_django.definitions.type_names import type_name
from catbird_django.errors import PayloadError

T = TypeVar("T")
UserId = NewType("UserId", int)
Json = TypeAliasType("Json", dict[str, "Json"] | list["Json"] | str | None)
Tree = TypeAliasType("Tree", dict[str, "Tree"] | list["Tree"] | str)


@dataclass
class Order:
    id: int


@dataclass
class Rush(Order):
    hours: int = 1


@dataclass
class Invoice:
    id: int


@dataclass
class Box(Generic[T]):
    inside: T


class Model(pydantic.BaseModel):
    id: int


class Roots(pydantic.RootModel[list[int]]):
    pass


class Line(TypedDict):
    price: int


class LongLine(Line):
    amount: int


class OtherLine(TypedDict):
    price: str


class Point(NamedTuple):
    x: int
    y: int


class Place(NamedTuple):
    x: int
    y: int


class Color(Enum):
    RED = "red"


class Shape(StrEnum):
    ROUND = "round"


class Size(IntEnum):
    BIG = 1


FITTING: list[tuple[Any, Any]] = [
    (int, int),
    (int, Any),
    (Any, int),
    (int, object),
    (object, int),
    (int, T),
    (int, float),
    (int, Decimal),
    (UserId, int),
    (int, UserId),
    (Annotated[int, "positive"], int),
    (NoReturn, int),
    (None, None),
    (None, int | None),
    (int, int | str),
    (int, int | None),
    (Union[int, str], str | int),  # noqa: UP007 - the older spelling
    (int | str, int | str | None),
    (Literal["a"], str),
    (str, Literal["a"]),
    (Literal["a"], Literal["a", "b"]),
    (Literal[1, "a"], int | str),
    (datetime, str),
    (str, datetime),
    (Rush, Order),
    (Order, Order | None),
    (Order, dict[str, Any]),
    (Order, Line),
    (dict[str, Any], Order),
    (dict, dict[str, int]),
    (dict[str, int], Mapping[str, float]),
    (dict[int, int], dict[str, int]),
    (Line, dict),
    (LongLine, Line),
    (Box[int], Box[int]),
    (Box[int], Box[float]),
    (Box[int], Box),
    (list[int], list[int]),
    (list[int], Sequence[float]),
    (list[int], Iterable[int | None]),
    (list[Rush], list[Order]),
    (list, list[int]),
    (list[int], set[int]),
    (tuple[int, ...], list[int]),
    (tuple[int, str], list[int | str]),
    (tuple[int, str], tuple[float, str]),
    (list[int], tuple[int, int]),
    (collections.deque[int], list[int]),
    (Point, tuple[int, int]),
    (list[int], Point),
    (Shape, str),
    (Color, str),
    (str, Color),
    (Size, int),
    (Size, float),
    (int, Size),
    (Roots, list[int]),
    (list[int], Roots),
    (Model, Model),
    (Json, Json),
    (Tree, Json),
    (list["Order"], list[Order]),
]

CLASHING: list[tuple[Any, Any]] = [
    (int, str),
    (str, int),
    (float, int),
    (bool, int),
    (int, bool),
    (Decimal, float),
    (datetime, UUID),
    (datetime, date),
    (None, int),
    (int, None),
    (int | None, int),
    (int | str, int),
    (UserId, str),
    (Annotated[int, "positive"], str),
    (Literal["a"], int),
    (int, Literal["a"]),
    (Literal["a", "c"], Literal["a", "b"]),
    (Literal[1, "a"], int),
    (Order, Invoice),
    (Order, Rush),
    (Order, Model),
    (Order, int),
    (int, Order),
    (Order, list[int]),
    (list[Order], Order),
    (Order, list[Order]),
    (Line, OtherLine),
    (Line, LongLine),
    (Line, str),
    (Box[int], Box[str]),
    (dict[str, int], dict[str, str]),
    (dict[str, int], dict[UUID, str]),
    (dict[str, int], list[int]),
    (list[int], list[str]),
    (list[int], str),
    (str, list[str]),
    (list[int | None], list[int]),
    (list[Order], list[Invoice]),
    (tuple[int, str], tuple[int, int]),
    (tuple[int, str], tuple[int]),
    (tuple[int, str], list[int]),
    (list[int], tuple[int, str]),
    (tuple[int, int], list[str] | tuple[str, int]),
    (Point, Place),
    (Color, Shape),
    (Color, int),
    (Size, str),
    (int, Color),
    (Shape, list[str]),
    (Json, int),
    (Json, Tree),
]


@pytest.mark.parametrize(("given", "wanted"), FITTING)
def test_it_fits(given: Any, wanted: Any) -> None:
    assert fits(given, wanted)


@pytest.mark.parametrize(("given", "wanted"), CLASHING)
def test_it_does_not_fit(given: Any, wanted: Any) -> None:
    assert not fits(given, wanted)


VALUES: dict[Any, Any] = {
    bool: True,
    int: 3,
    float: 2.5,
    str: "text",
    Decimal: Decimal("2.5"),
    datetime: datetime(2026, 3, 1, 12, 30),
    date: date(2026, 3, 1),
    time: time(12, 30),
    timedelta: timedelta(hours=3),
    UUID: UUID(int=7),
    None: None,
    Color: Color.RED,
    Shape: Shape.ROUND,
    Size: Size.BIG,
    Point: Point(1, 2),
    Order: Order(1),
    Line: {"price": 3},
    list[int]: [1, 2],
    dict[str, int]: {"a": 1},
    Literal["a"]: "a",
}
# Readable as it happens, but nothing that anyone would mean: the classes have nothing to do with each other.
UNRELATED = {
    *((number, moment) for number in (int, float, Size) for moment in (datetime, date, time, timedelta)),
    *{(Decimal, datetime), (time, timedelta), (bool, Size)},
}


@pytest.mark.parametrize("given", VALUES, ids=type_name)
@pytest.mark.parametrize("wanted", VALUES, ids=type_name)
def test_what_can_be_read_is_not_refused(given: Any, wanted: Any) -> None:
    """No false errors: a pair is refused only if the codec refuses an ordinary value of it."""
    text = codec_for(given).encode(VALUES[given], name="value", max_bytes=1000)
    try:
        codec_for(wanted).decode(text, name="value")
    except PayloadError:
        return

    assert fits(given, wanted) or (given, wanted) in UNRELATED


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ([int], int),
        ([float, int], int),
        ([dict[str, Any], Order, Order | None], Order),
        ([str, datetime], datetime),
        ([Order, Rush], Rush),
        ([int, str], int),
    ],
)
def test_the_narrowest_type_is_the_one_that_all_others_can_read(annotations: list[Any], expected: Any) -> None:
    assert narrowest(annotations) is expected


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, "int"),
        (None, "None"),
        (type(None), "None"),
        (Any, "Any"),
        (Order, "Order"),
        (int | None, "int | None"),
        (list[Order | None], "list[Order | None]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Literal["a", 1], "Literal['a', 1]"),
        (Annotated[int, "positive"], "int"),
        (Box[int], "Box[int]"),
        (dict[str, Any], "dict[str, Any]"),
        (UserId, "UserId"),
    ],
)
def test_types_are_shown_as_their_authors_write_them(annotation: Any, expected: str) -> None:
    assert type_name(annotation) == expected
