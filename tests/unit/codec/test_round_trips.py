"""T2: values of every family of types come back equal, and of the same class."""

from __future__ import annotations

import uuid
from collections import OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NewType, Optional, Union

import pydantic
import pytest

from catbird_django.codec import codec_for, decode_any, encode_any
from tests.unit.codec.shapes import (
    MEGABYTE,
    Cash,
    Colour,
    Customer,
    Level,
    Line,
    Movie,
    Numbers,
    OpenModel,
    Order,
    Point,
    Refund,
    Size,
    TaggedCard,
    TaggedCash,
    Tree,
)

PLUS_TWO = timezone(timedelta(hours=2))
ORDER = Order(uuid.UUID(int=7), datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), [Line("a", Decimal("9.50"), 2)])
UserId = NewType("UserId", int)

FAMILIES: list[tuple[Any, Any]] = [
    (int, 5),
    (float, 2.5),
    (str, "text"),
    (bool, True),
    (None, None),
    (Order, ORDER),
    (Movie, {"title": "M", "year": 1931}),
    (Movie, {"title": "M"}),
    (Point, Point(1, Decimal("2.50"))),
    (Colour, Colour.DARK_BLUE),
    (Level, Level.HIGH),
    (Size, Size.SMALL),
    (Literal["a", 1], 1),
    (Optional[int], None),  # noqa: UP045  # the old spelling is what is tested
    (Union[int, str], "a"),  # noqa: UP007  # as above
    (int | str | None, 3),
    (Line | Refund, Refund(Decimal(1), "late")),
    (Line | Refund, Line("a", Decimal(1))),
    (TaggedCash | TaggedCard, TaggedCard(5)),
    (list[TaggedCash | TaggedCard], [TaggedCard(5), TaggedCash(6)]),
    (list[Line], [Line("a", Decimal(1))]),
    (dict[str, Line], {"a": Line("a", Decimal(1))}),
    (dict[int, str], {1: "a", -2: "b"}),
    (dict[date, int], {date(2026, 1, 2): 1}),
    (dict[uuid.UUID, int], {uuid.UUID(int=7): 1}),
    (dict[Colour, int], {Colour.RED: 1}),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (deque[int], deque([1, 2])),
    (Sequence[int], [1, 2]),
    (Mapping[str, int], {"a": 1}),
    (OrderedDict[str, int], OrderedDict(a=1)),
    (defaultdict[str, int], defaultdict(int, a=1)),
    (datetime, datetime(2026, 1, 2, 3, 4, 5, 678901)),
    (datetime, datetime(2026, 1, 2, 3, 4, 5, tzinfo=PLUS_TWO)),
    (date, date(2026, 1, 2)),
    (time, time(1, 2, 3, 4)),
    (timedelta, timedelta(days=-1, microseconds=5)),
    (uuid.UUID, uuid.UUID(int=7)),
    (Decimal, Decimal("1.50")),
    (Decimal, Decimal("1E+5000")),
    (Annotated[int, pydantic.Field(ge=0)], 5),
    (UserId, UserId(5)),
    (PurePosixPath, PurePosixPath("a/b")),
    (IPv4Address, IPv4Address("127.0.0.1")),
    (Customer, Customer(name="Ada", email_address="ada@example.org")),
    (list[Customer], [Customer(name="Ada", score=1.5)]),
    (OpenModel, OpenModel.model_validate({"name": "a", "more": [1]})),
    (Numbers, Numbers([1, 2])),
    (Tree, Tree(1, [Tree(2), Tree(3, [Tree(4)])])),
    (Any, {"a": [1, None, {"b": "c"}]}),
    (object, [1]),
    (dict, {"a": [1]}),
    (list, [1, "a"]),
]


@pytest.mark.parametrize(("annotation", "value"), FAMILIES, ids=lambda part: repr(part)[:50])
def test_a_value_of_the_type_comes_back(annotation: Any, value: Any) -> None:
    codec = codec_for(annotation)

    back = codec.decode(codec.encode(value, name="input", max_bytes=MEGABYTE), name="input")

    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(("annotation", "value"), FAMILIES, ids=lambda part: repr(part)[:50])
def test_its_json_form_is_accepted_as_well_and_gives_the_same(annotation: Any, value: Any) -> None:
    """T2a."""
    codec = codec_for(annotation)
    json_form = decode_any(codec.encode(value, name="input", max_bytes=MEGABYTE), name="input")

    back = codec.decode(codec.encode(json_form, name="input", max_bytes=MEGABYTE), name="input")

    assert back == value
    assert type(back) is type(value)


def test_bytes_of_the_text_can_be_decoded_too() -> None:
    assert codec_for(Cash).decode(b'{"amount": 5}', name="input") == Cash(5)


def test_a_naive_datetime_stays_naive_and_an_aware_one_keeps_its_offset() -> None:
    codec = codec_for(list[datetime])
    moments = [datetime(2026, 1, 2), datetime(2026, 1, 2, tzinfo=PLUS_TWO)]

    back = codec.decode(codec.encode(moments, name="input", max_bytes=MEGABYTE), name="input")

    assert [moment.utcoffset() for moment in back] == [None, timedelta(hours=2)]


def test_the_text_is_compact_and_keeps_characters_as_they_are() -> None:
    assert encode_any({"a": [1, 2], "ü": "😀"}, name="input", max_bytes=99) == '{"a":[1,2],"ü":"😀"}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("1.50"), '"1.50"'),
        ({3}, "[3]"),
        ((1, 2), "[1,2]"),
        (Colour.RED, '"red"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
        (timedelta(hours=1), '"PT1H"'),
        (Line("a", Decimal(1)), '{"sku":"a","price":"1","quantity":1}'),
        (Customer(name="a"), '{"name":"a","score":null,"emailAddress":null}'),
    ],
    ids=repr,
)
def test_an_untyped_value_is_written_in_its_json_form(value: object, text: str) -> None:
    """Class 9 of the bad inputs: accepted, by the documented encoder."""
    assert encode_any(value, name="input", max_bytes=MEGABYTE) == text


@pytest.mark.parametrize("value", [1e16, 4.563415126836015e16, -1e300, 1.7976931348623157e308])
def test_a_large_float_is_spelled_out_so_that_jsonb_keeps_it_a_float(value: float) -> None:
    text = encode_any({"1e20": value, "s": '\\"1e20'}, name="input", max_bytes=MEGABYTE)

    assert "e" not in text.replace("1e20", "")
    assert text.endswith('.0,"s":"\\\\\\"1e20"}')
    assert decode_any(text, name="input") == {"1e20": value, "s": '\\"1e20'}
