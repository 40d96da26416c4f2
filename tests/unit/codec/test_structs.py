"""T2: types of msgspec are supported when it is installed, at any depth."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest

from catbird_django.codec import FieldKind, codec_for, encode_any
from catbird_django.errors import PayloadError
from tests.unit.codec.shapes import MEGABYTE, Customer

msgspec = pytest.importorskip("msgspec")


class Item(msgspec.Struct, frozen=True):
    sku: str
    price: Decimal
    count: Annotated[int, msgspec.Meta(ge=1)] = 1


class Basket(msgspec.Struct, rename="camel", tag=True):
    placed_at: Annotated[datetime, msgspec.Meta(tz=True)]
    all_items: list[Item]
    counts: dict[int, str] = {}
    parent: Basket | None = None


class Owned(msgspec.Struct):
    customer: Customer


@dataclass
class Delivery:
    basket: Basket
    notes: list[str]


BASKET = Basket(datetime(2026, 1, 2, tzinfo=UTC), [Item("a", Decimal("1.50"))], {1: "one"})


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Basket, BASKET),
        (list[Basket], [BASKET]),
        (dict[str, Item | None], {"a": Item("a", Decimal(1)), "b": None}),
        (Delivery, Delivery(BASKET, ["a"])),
        (Owned, Owned(Customer(name="Ada", score=1.5))),
    ],
    ids=repr,
)
def test_a_struct_comes_back(annotation: Any, value: Any) -> None:
    codec = codec_for(annotation)

    assert codec.decode(codec.encode(value, name="input", max_bytes=MEGABYTE), name="input") == value


def test_the_json_form_of_a_struct_is_accepted() -> None:
    text = codec_for(Item).encode({"sku": "a", "price": "1.50"}, name="input", max_bytes=MEGABYTE)

    assert text == '{"sku":"a","price":"1.50","count":1}'


def test_an_untyped_struct_is_written_in_its_json_form() -> None:
    assert encode_any([Item("a", Decimal(1))], name="input", max_bytes=99) == '[{"sku":"a","price":"1","count":1}]'


def test_errors_inside_a_struct_name_the_path_too() -> None:
    basket = {"type": "Basket", "placedAt": "2026-01-02T00:00:00Z", "allItems": [{"sku": 5, "price": "1"}]}

    with pytest.raises(PayloadError) as caught:
        codec_for(Delivery).encode({"basket": basket, "notes": []}, name="input", max_bytes=MEGABYTE)

    assert caught.value.path == "input.basket.allItems[0].sku"


def test_the_limits_hold_inside_a_struct() -> None:
    with pytest.raises(PayloadError) as caught:
        codec_for(Delivery).encode(
            Delivery(Basket(datetime(2026, 1, 2, tzinfo=UTC), [Item("a", Decimal("NaN"))]), []),
            name="input",
            max_bytes=MEGABYTE,
        )

    assert caught.value.path == "input.basket.all_items[0].price"


def test_the_constraints_of_a_struct_are_checked() -> None:
    with pytest.raises(PayloadError) as caught:
        codec_for(Item).decode('{"sku": "a", "price": "1", "count": 0}', name="input")

    assert caught.value.path == "input.count"


def test_a_struct_is_described_like_any_other_type() -> None:
    basket, notes = codec_for(Delivery).fields()
    kinds = {field.name: field.kind for field in basket.fields}

    assert notes.kind is FieldKind.LIST
    assert kinds["placedAt"] is FieldKind.DATETIME
    assert kinds["allItems"] is FieldKind.LIST
    assert [field.name for field in codec_for(Item).fields()] == ["sku", "price", "count"]
    assert codec_for(Item).fields()[1].kind is FieldKind.DECIMAL


def test_every_reference_in_the_schema_leads_somewhere() -> None:
    schema = codec_for(Delivery).json_schema()

    assert _references(schema) <= {f"#/$defs/{name}" for name in schema["$defs"]}


def _references(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        own = {schema["$ref"]} if "$ref" in schema else set()
        return own.union(*map(_references, schema.values()))
    return set().union(*map(_references, schema)) if isinstance(schema, list) else set()
