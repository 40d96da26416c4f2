"""Types described as the fields of a form, for start and signal forms."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import models

from catbird_django.codec import Field, FieldKind, codec_for
from tests.unit.codec.shapes import Colour, Customer, Movie, Order, Point, Survey


def field(name: str, annotation: Any = Survey) -> Field:
    return next(field for field in codec_for(annotation).fields() if field.name == name)


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (str, FieldKind.TEXT),
        (int, FieldKind.INTEGER),
        (float, FieldKind.NUMBER),
        (Decimal, FieldKind.DECIMAL),
        (bool, FieldKind.BOOLEAN),
        (date, FieldKind.DATE),
        (datetime, FieldKind.DATETIME),
        (time, FieldKind.TIME),
        (timedelta, FieldKind.DURATION),
        (UUID, FieldKind.UUID),
        (Colour, FieldKind.CHOICE),
        (list[int], FieldKind.LIST),
        (tuple[int, str], FieldKind.TUPLE),
        (dict[str, int], FieldKind.MAPPING),
        (int | str, FieldKind.UNION),
        (Any, FieldKind.JSON),
    ],
)
def test_a_type_without_fields_is_one_field_named_value(annotation: Any, kind: FieldKind) -> None:
    (only,) = codec_for(annotation).fields()

    assert (only.name, only.kind, only.required, only.nullable) == ("value", kind, True, False)


def test_nothing_but_the_null_changes_when_a_type_becomes_optional() -> None:
    (only,) = codec_for(Decimal | None).fields()

    assert (only.kind, only.nullable) == (FieldKind.DECIMAL, True)


@pytest.mark.parametrize(
    ("annotation", "names"),
    [
        (Order, ["id", "placed_at", "lines", "colour", "note"]),
        (Movie, ["title", "year"]),
        (Point, ["x", "y"]),
        (Customer, ["name", "score", "emailAddress"]),
    ],
)
def test_a_type_with_fields_is_described_by_them_in_order(annotation: Any, names: list[str]) -> None:
    assert [field.name for field in codec_for(annotation).fields()] == names


def test_labels_and_help_come_from_the_annotation_or_the_name() -> None:
    assert (field("age").label, field("age").help) == ("Your age", "In years")
    assert field("placed_at", Order).label == "Placed At"
    assert field("colour").label == "Colour"
    assert field("age").constraints == {"minimum": 0}


def test_what_is_required_and_what_is_the_default_is_told() -> None:
    assert field("age").required
    assert not field("size").required
    assert not field("year", Movie).required
    assert field("colour", Order).default == "red"
    assert field("y", Point).default == "0"
    assert field("size").nullable


def test_choices_come_with_labels() -> None:
    assert field("colour").choices == (("red", "Red"), ("blue", "Dark blue"))
    assert field("size").choices == (("s", "s"), ("m", "m"))


def test_the_labels_of_djangos_choices_are_used() -> None:
    class Priority(models.TextChoices):
        LOW = "l", "Can wait"

    assert codec_for(Priority).fields()[0].choices == (("l", "Can wait"),)


def test_nested_types_are_described_inside() -> None:
    (item,) = [field("lines", Order).item]

    assert item is not None
    assert [(part.name, part.kind) for part in item.fields] == [
        ("sku", FieldKind.TEXT),
        ("price", FieldKind.DECIMAL),
        ("quantity", FieldKind.INTEGER),
    ]
    assert field("limits").item is not None
    assert field("limits").item.kind is FieldKind.DECIMAL  # type: ignore[union-attr]
    assert [part.name for part in field("place").fields] == ["x", "y"]


def test_the_alternatives_of_a_union_are_described_by_name() -> None:
    assert [variant.name for variant in field("paid_with").variants] == ["TaggedCash", "TaggedCard"]
    assert field("paid_with").variants[1].fields[1].choices == (("card", "card"),)


def test_a_type_that_contains_itself_is_described_once() -> None:
    children = field("tree").fields[1]

    assert children.name == "children"
    assert children.item is not None
    assert children.item.kind is FieldKind.JSON


def test_the_json_schema_describes_the_json_form() -> None:
    schema = codec_for(Order).json_schema()

    assert schema["required"] == ["id", "placed_at", "lines"]
    assert schema["properties"]["placed_at"]["format"] == "date-time"
