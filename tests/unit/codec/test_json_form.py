"""T2a: typed value or JSON form, both validated; nothing is coerced, and errors name the field."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from catbird_django.codec import codec_for, decode_any
from catbird_django.errors import PayloadError
from tests.unit.codec.shapes import (
    MEGABYTE,
    Card,
    Cash,
    Customer,
    Line,
    Movie,
    OpenModel,
    Order,
    Point,
    Positive,
    Refund,
    TaggedCard,
    TaggedCash,
    Ticket,
    Tree,
)


def encode(annotation: Any, value: object) -> str:
    return codec_for(annotation).encode(value, name="input", max_bytes=MEGABYTE)


def refusal(annotation: Any, value: object) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        encode(annotation, value)
    return caught.value


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (int, '"5"'),
        (int, "true"),
        (int, "5.0"),
        (float, '"5"'),
        (bool, "1"),
        (str, "5"),
        (Decimal, "true"),
        (None, "0"),
    ],
)
def test_nothing_is_coerced(annotation: Any, text: str) -> None:
    with pytest.raises(PayloadError):
        codec_for(annotation).decode(text, name="input")


def test_a_whole_number_is_fine_for_a_float() -> None:
    assert codec_for(float).decode("5", name="input") == 5.0


def test_a_mixture_of_objects_and_json_forms_is_accepted() -> None:
    text = encode(list[Line], [Line("a", Decimal(1)), {"sku": "b", "price": Decimal(2)}])

    assert codec_for(list[Line]).decode(text, name="input") == [Line("a", Decimal(1)), Line("b", Decimal(2))]


def test_defaults_are_filled_in_once_so_that_every_attempt_sees_the_same() -> None:
    text = encode(Ticket, {"title": "a"})

    assert codec_for(Ticket).decode(text, name="input") == codec_for(Ticket).decode(text, name="input")
    assert len(decode_any(text, name="input")["number"]) == 32  # type: ignore[index,call-overload,arg-type]


def test_the_path_of_an_error_reads_like_python() -> None:
    lines = [{"sku": "a", "price": "1"}, {"sku": "b", "price": "1"}, {"sku": "c", "price": "much"}]

    error = refusal(dict[str, list[Line]], {"a b": lines})

    assert error.path == 'input["a b"][2].price'
    assert str(error).startswith(f"{error.path}: ")


def test_all_problems_are_listed_at_once() -> None:
    error = refusal(Order, {"id": 5, "placed_at": "now", "lines": [{"sku": 1, "quantity": "2"}], "typo": 1})

    assert error.path == "input.id"
    assert "input.placed_at: " in str(error)
    assert "input.lines[0].sku: should be a valid string, not a number" in str(error)
    assert "input.lines[0].price: is missing" in str(error)
    assert str(error).endswith("; and 1 more")


def test_an_object_with_wrong_contents_is_refused_like_its_json_form() -> None:
    error = refusal(Line, Line("a", Decimal(1), "two"))  # type: ignore[arg-type]

    assert error.path == "input.quantity"


def test_a_decoding_error_names_the_field_under_the_given_name() -> None:
    with pytest.raises(PayloadError, match=r"^output\.lines\[0\]\.price: is missing") as caught:
        codec_for(dict[str, list[Line]]).decode('{"lines": [{"sku": "a"}]}', name="output")

    assert caught.value.path == "output.lines[0].price"


def test_values_stay_out_of_the_message_and_of_its_causes() -> None:
    """They may be secrets, and messages end up in logs."""
    error = refusal(Order, {"id": "hunter2", "placed_at": "hunter2", "lines": "hunter2"})

    assert "hunter2" not in str(error)
    assert error.__cause__ is None


def test_unknown_fields_are_refused_at_the_door_and_tolerated_by_a_reader() -> None:
    """A worker of the previous release must be able to read what the next one wrote."""
    assert refusal(Cash, {"amount": 1, "amuont": 2}).path == "input.amuont"
    assert refusal(Movie, {"title": "M", "length": 2}).path == "input.length"
    assert codec_for(Cash).decode('{"amount": 1, "currency": "EUR"}', name="input") == Cash(1)


def test_a_model_that_allows_extra_fields_keeps_them() -> None:
    assert encode(OpenModel, {"name": "a", "more": 1}) == '{"name":"a","more":1}'


def test_a_type_may_refuse_by_itself_with_any_exception() -> None:
    assert "must not be negative" in str(refusal(list[Positive], [{"amount": 1}, {"amount": -1}]))
    assert refusal(list[Positive], [{"amount": 1}, {"amount": -1}]).path == "input[1]"
    assert "LookupError" in str(refusal(Positive, {"amount": 0}))


def test_the_alternatives_of_a_union_are_named_beside_the_path() -> None:
    error = refusal(list[Cash | Refund], [{"amount": "x"}])

    assert error.path == "input[0].amount"
    assert "(as Cash)" in str(error)
    assert "input[0].reason: is missing (as Refund)" in str(error)


def test_an_object_that_would_come_back_as_another_class_is_refused() -> None:
    assert refusal(Cash | Card, Card(5)).path == "input"
    assert refusal(dict[str, list[Cash | Card]], {"paid": [Cash(1), Card(5)]}).path == "input.paid[1]"
    assert "Literal['card']" in str(refusal(Cash | Card, Card(5)))
    assert refusal(Cash, Card(5)).path == "input"


def test_a_field_that_tells_them_apart_is_all_a_union_needs() -> None:
    codec = codec_for(dict[str, TaggedCash | TaggedCard])

    assert codec.decode(encode(dict[str, TaggedCash | TaggedCard], {"a": TaggedCard(5)}), name="input") == {
        "a": TaggedCard(5)
    }


def test_a_named_tuple_may_be_given_as_an_object() -> None:
    assert encode(Point, {"x": 1}) == '[1,"0"]'


def test_an_alias_is_the_name_in_json() -> None:
    assert '"emailAddress":"a@example.org"' in encode(Customer, {"name": "a", "emailAddress": "a@example.org"})


def test_keys_of_a_declared_type_are_strings_in_json() -> None:
    assert encode(dict[int, str], {5: "a"}) == '{"5":"a"}'
    assert encode(dict[int, str], {"5": "a"}) == '{"5":"a"}'
    assert refusal(dict[int, str], {"five": "a"}).path == "input.five"


def test_deep_paths_of_a_recursive_type_are_named() -> None:
    error = refusal(Tree, Tree(1, [Tree(2, [Tree("x")])]))  # type: ignore[arg-type]

    assert error.path == "input.children[0].children[0].value"


@pytest.mark.parametrize("text", ["", "{", "[1,]", "nope", "{'a': 1}", b"\xff"])
def test_text_that_is_not_json_is_refused(text: str | bytes) -> None:
    for decode in (codec_for(Cash).decode, decode_any):
        with pytest.raises(PayloadError, match=r"^input: not "):
            decode(text, name="input")


def test_scalars_with_the_same_json_form_are_not_told_apart() -> None:
    """A known limit, and documented: JSON has one kind of text for all of them."""
    assert codec_for(str | Decimal).decode(encode(str | Decimal, Decimal("1.5")), name="input") == "1.5"
    assert codec_for(Decimal | str).decode(encode(Decimal | str, "1.5"), name="input") == Decimal("1.5")
    assert encode(str, Decimal("1.5")) == '"1.5"'
