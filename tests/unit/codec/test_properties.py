"""R11: any JSON value survives, and whatever text comes in, the only error that comes out is PayloadError."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from catbird_django.codec import codec_for, decode_any, encode_any
from catbird_django.errors import PayloadError
from tests.unit.codec.shapes import MEGABYTE, Colour, Line, Order, Point


@dataclass
class Everything:
    text: str
    whole: int
    number: float
    flag: bool
    exact: Decimal
    key: UUID
    moment: datetime
    day: date
    hour: time
    span: timedelta
    colour: Colour | None
    place: Point
    lines: list[Line]
    by_day: dict[date, int]
    tags: frozenset[str]
    anything: Any


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
numbers = st.floats(allow_nan=False, allow_infinity=False)
decimals = st.decimals(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers(-(10**50), 10**50) | numbers | texts
json_values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=40)
lines = st.builds(Line, texts, decimals, st.integers())
everything = st.builds(
    Everything,
    text=texts,
    whole=st.integers(),
    number=numbers,
    flag=st.booleans(),
    exact=decimals,
    key=st.uuids(),
    moment=st.datetimes(),
    day=st.dates(),
    hour=st.times(),
    span=st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000)),
    colour=st.none() | st.sampled_from(Colour),
    place=st.builds(Point, st.integers(), decimals),
    lines=st.lists(lines, max_size=3),
    by_day=st.dictionaries(st.dates(), st.integers(), max_size=3),
    tags=st.frozensets(texts, max_size=3),
    anything=json_values,
)


@given(json_values)
def test_any_json_value_comes_back(value: Any) -> None:
    assert decode_any(encode_any(value, name="input", max_bytes=MEGABYTE), name="input") == value


@given(everything)
def test_any_typed_value_comes_back(value: Everything) -> None:
    codec = codec_for(Everything)

    assert codec.decode(codec.encode(value, name="input", max_bytes=MEGABYTE), name="input") == value


@given(st.recursive(scalars | st.text() | st.floats() | st.binary(), lambda inner: st.lists(inner) | st.sets(scalars)))
def test_whatever_is_given_the_only_error_is_ours_and_what_is_accepted_can_be_read(value: Any) -> None:
    for annotation in (Any, list[int], Order, dict[str, str | float]):
        codec = codec_for(annotation)

        with suppress(PayloadError):
            text = codec.encode(value, name="input", max_bytes=MEGABYTE)
            assert unrefused(codec.decode, text)


@given(st.text() | json_values.map(repr) | st.binary())
def test_whatever_is_read_the_only_error_is_ours(text: str | bytes) -> None:
    for annotation in (Any, Order, list[float]):
        with suppress(PayloadError):
            codec_for(annotation).decode(text, name="output")


def unrefused(decode: Callable[..., object], text: str) -> bool:
    try:
        decode(text, name="input")
    except PayloadError:
        return False
    return True
