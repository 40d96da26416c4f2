"""R11: the 24 classes of bad input are refused before any SQL with the path, or stored exactly."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pydantic
import pytest
from django.db import models
from django.utils.translation import gettext_lazy

from catbird_django.codec import MAX_DEPTH, codec_for, decode_any, encode_any
from catbird_django.errors import PayloadError
from tests.unit.codec.shapes import MEGABYTE, Cash, Customer, Reading, Tree


def stored(value: object) -> object:
    return decode_any(encode_any(value, name="input", max_bytes=MEGABYTE), name="input")


def refusal(value: object, annotation: Any = Any) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        codec_for(annotation).encode(value, name="input", max_bytes=MEGABYTE)
    return caught.value


def nested(depth: int, innermost: object = 1) -> object:
    value = innermost
    for _ in range(depth):
        value = [value]
    return value


def test_1_a_nul_character_is_refused_in_texts_and_in_keys() -> None:
    assert refusal({"a": ["b", "c\0d"]}).path == "input.a[1]"
    assert refusal({"a": {"b\0": 1}}).path == "input.a"
    assert refusal(["\0"], list[str]).path == "input[0]"
    assert refusal(nested(MAX_DEPTH, "\0")).path.endswith("[0]")


def test_1_what_only_looks_like_an_escaped_nul_is_stored() -> None:
    assert stored("\\u0000") == "\\u0000"


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udc80\ud800"])
def test_2_half_a_surrogate_pair_is_refused(text: str) -> None:
    assert refusal({"a": [text]}).path == "input.a[0]"
    assert refusal({"a": {text: 1}}).path == "input.a"
    assert refusal({"a": text}, dict[str, str]).path == "input.a"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), Decimal("NaN"), Decimal("-Infinity")])
def test_3_and_4_nan_and_infinity_are_refused(number: float | Decimal) -> None:
    assert refusal({"a": [1.5, number]}).path == "input.a[1]"
    assert refusal([number], list[type(number)]).path == "input[0]"  # type: ignore[misc]


def test_3_nan_never_becomes_null_where_null_would_be_allowed() -> None:
    assert refusal(Reading(float("nan")), Reading).path == "input.level"
    assert refusal(Reading(None, {"x": [float("nan")]}), Reading).path == "input.raw.x[0]"
    assert refusal(Customer(name="a", score=float("nan")), Customer).path == "input.score"
    assert refusal([Customer(name="a", score=float("inf"))]).path == "input[0].score"


@pytest.mark.parametrize("text", ["NaN", "-Infinity", '{"a": [NaN]}', "1e400", "-1e400", "1" + "0" * 400])
def test_3_4_and_7_numbers_that_no_float_can_hold_are_refused_when_read(text: str) -> None:
    annotation = dict[str, list[float]] if text.startswith("{") else float

    with pytest.raises(PayloadError):
        codec_for(annotation).decode(text, name="input")


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, 2**64 + 1, -(10**40), 10**999])
def test_5_and_6_large_integers_come_back_exactly(number: int) -> None:
    codec = codec_for(int)

    assert stored([number]) == [number]
    assert codec.decode(codec.encode(number, name="input", max_bytes=MEGABYTE), name="input") == number


def test_6_an_integer_of_more_than_a_thousand_digits_is_refused() -> None:
    assert refusal({"a": 10**1000}).path == "input.a"
    assert refusal([-(10**5000)], list[int]).path == "input[0]"


def test_7_exponents_that_a_column_would_refuse_are_refused() -> None:
    for text in ("1e400", "[1e200000]", "1E+400"):
        with pytest.raises(PayloadError):
            decode_any(text, name="input")
    assert refusal(10**400, float).path == "input"
    assert refusal({"level": 10**400}, Reading).path == "input.level"


@pytest.mark.parametrize("data", [b"abc", bytearray(b"abc"), memoryview(b"abc")], ids=lambda data: type(data).__name__)
def test_8_bytes_are_refused_also_where_text_is_declared(data: object) -> None:
    assert "base64" in str(refusal({"a": data}))
    assert refusal({"a": data}, dict[str, str]).path == "input.a"


def test_10_a_circular_reference_is_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    wide: dict[str, object] = {}
    wide |= {"a": wide, "b": wide}
    tree = Tree(1)
    tree.children.append(tree)

    for value, annotation in ((circle, Any), (wide, Any), (tree, Tree)):
        assert "contains itself" in str(refusal(value, annotation))


def test_10_shared_references_are_no_circle_but_count_each_time() -> None:
    shared = ["x"]
    assert stored([shared, shared]) == [["x"], ["x"]]

    bomb: object = ["x"]
    for _ in range(60):
        bomb = [bomb] * 10
    assert "too big" in str(refusal(bomb))


def test_11_a_hundred_levels_are_stored_and_one_more_is_not() -> None:
    assert stored(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    assert "deeper than 100" in str(refusal(nested(MAX_DEPTH + 1)))


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_11_no_recursion_error_escapes_however_deep(depth: int) -> None:
    tree = Tree(1)
    for _ in range(depth):
        tree = Tree(1, [tree])

    assert "deeper than 100" in str(refusal(nested(depth)))
    assert "deeper than 100" in str(refusal(tree, Tree))
    with pytest.raises(PayloadError):
        decode_any("[" * depth + "]" * depth, name="input")
    while tree.children:  # taken apart here, because freeing it in one go is recursive
        tree = tree.children.pop()


@pytest.mark.parametrize(
    ("annotation", "make"),
    [
        (Any, lambda: "x" * 10_000_000),
        (Any, lambda: {"a": "\0" * 10_000_000}),
        (dict[str, str], lambda: {"a": "é" * 10_000_000}),
        (Any, lambda: {str(number): number for number in range(1_000_000)}),
        (dict[str, int], lambda: {str(number): number for number in range(1_000_000)}),
        (list[int], lambda: list(range(1_000_000))),
    ],
)
def test_12_and_13_what_is_far_too_big_is_refused_quickly(annotation: Any, make: Callable[[], object]) -> None:
    value = make()
    begun = time.process_time()

    error = refusal(value, annotation)

    assert time.process_time() - begun < 0.2
    assert error.path == "input"
    assert "too big: at most 1,048,576 bytes" in str(error)


def test_12_the_limit_counts_bytes_of_utf_8() -> None:
    assert encode_any("é" * 10, name="input", max_bytes=22) == f'"{"é" * 10}"'
    with pytest.raises(PayloadError, match="this takes 22;"):
        encode_any("é" * 10, name="input", max_bytes=21)


def test_14_of_a_repeated_key_the_last_one_counts_as_in_jsonb() -> None:
    assert decode_any('{"a": 1, "a": 2}', name="input") == {"a": 2}
    assert codec_for(Cash).decode('{"amount": 1, "amount": 2}', name="input") == Cash(2)


@pytest.mark.parametrize("key", [1, 1.5, None, True, (1, 2), b"a"], ids=repr)
def test_15_keys_that_are_not_strings_are_refused(key: object) -> None:
    assert refusal({"a": {key: 1}}).path == "input.a"
    assert refusal({key: "a"}, dict[str, str]).path == "input"


def test_16_none_is_json_null() -> None:
    assert encode_any(None, name="input", max_bytes=4) == "null"
    assert codec_for(Cash | None).encode(None, name="input", max_bytes=4) == "null"
    assert codec_for(type(None)).decode("null", name="input") is None


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "", "text", [], [1], {}])
def test_17_a_scalar_or_an_array_may_be_the_whole_value(value: object) -> None:
    assert stored(value) == value


@pytest.mark.parametrize(
    "text",
    [
        *("a.b", "a[0]", "$", '"', "", " ", "__proto__"),  # class 18
        *("\u202eabc", "a\u200bb", "😀", "e\u0301", "\ufeff", "\uffff", "\u2028"),  # class 19
        *("<script>alert(1)</script>", "&amp;", "</script>"),  # class 20
        *("'; DROP TABLE cb_task_runs; --", "\\", "\\'", "E'\\x00'"),  # class 21
        *("%s", "%%", "%(a)s", "{}", "{0}"),  # class 22
        *("\r\n", "\x1b[31m", "\x01", "\x7f", "\t"),  # class 23
    ],
    ids=ascii,
)
def test_18_to_23_odd_texts_are_stored_as_they_are_also_as_keys(text: str) -> None:
    assert stored({text: [text]}) == {text: [text]}


def test_18_odd_keys_are_quoted_in_a_path() -> None:
    assert refusal({'a"b.c': [float("nan")]}).path == 'input["a\\"b.c"][0]'
    assert len(refusal({"k" * 10_000 + "!": [float("nan")]}).path) < 100


class Book(models.Model):
    title = models.TextField()

    class Meta:
        app_label = "codec_tests"

    def __str__(self) -> str:
        return self.title


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda: (number for number in range(3)), "pass a list"),
        (lambda: map(str, range(3)), "pass a list"),
        (lambda: Book(title="a"), "pass the primary key"),
        (lambda: models.QuerySet(Book), "list of primary keys"),
        (lambda: gettext_lazy("yes"), "pass str(text)"),
        (lambda: pydantic.SecretStr("hunter2"), "asterisks"),
        (lambda: len, "look it up"),
        (lambda: MappingProxyType({"a": 1}), "pass dict(value)"),
        (object, "pass its JSON form"),
        (lambda: 1j, "complex"),
    ],
)
def test_24_lazy_and_live_objects_are_refused_with_advice(make: Callable[[], object], advice: str) -> None:
    for annotation in (Any, dict[str, Any], dict[str, str], dict[str, list[int]]):
        error = refusal({"a": make()}, annotation)

        assert error.path == "input.a"
        assert advice in str(error)


def test_24_a_refused_generator_has_not_been_consumed() -> None:
    numbers = iter([1, 2])

    refusal({"a": numbers}, dict[str, list[int]])

    assert list(numbers) == [1, 2]


def test_the_recursion_limit_of_the_interpreter_is_left_alone() -> None:
    limit = sys.getrecursionlimit()

    refusal(nested(100_000))

    assert sys.getrecursionlimit() == limit
