"""F10, F10b: the grammar of conditions, and what they mean in Python; tests/sql/test_conditions.py has the SQL."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catbird_django import DefinitionError, Task
from catbird_django.definitions.conditions import ConditionTypeError, evaluate, parse_condition
from catbird_django.definitions.registry import registry


def tree(text: str) -> dict[str, Any]:
    return parse_condition(text, roots={"input"}).tree


def holds(text: str, value: Any) -> bool:
    return evaluate(tree(text), {"input": value})


def test_a_field_a_path_and_a_value() -> None:
    assert tree('input.lines[0]["unit price"].net gte 1.5') == {
        "op": "gte",
        "field": 'input.lines[0]["unit price"].net',
        "path": ["input", "lines", 0, "unit price", "net"],
        "value": 1.5,
    }


def test_not_binds_tighter_than_and_and_and_tighter_than_or() -> None:
    """F10."""
    parsed = tree("not input.a and input.b or input.c")

    assert parsed["op"] == "or"
    assert parsed["of"][0]["op"] == "and"
    assert parsed["of"][0]["of"][0]["op"] == "not"
    assert tree("not (input.a and (input.b or input.c))")["of"][0]["of"][1]["op"] == "or"


def test_a_word_of_the_grammar_may_be_a_key() -> None:
    assert tree("input.in.not exists")["path"] == ["input", "in", "not"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected a field.*at its end"),
        ("input.a eq", "expected a JSON value after 'eq'.*at its end"),
        ("input.a eq 'x'", "neither a field.*at character 12"),
        ("input.a eq NaN", "expected a JSON value"),
        ("input.a eq 1e999", "neither a field"),
        ('input.a eq "\\u0000"', "NUL"),
        ('input.a eq "\\ud800"', "surrogate"),
        ("input.a input.b", "expected 'and', 'or' or the end.*at character 9"),
        ("(input.a", r"expected '\)'"),
        ("input.a)", "expected 'and', 'or' or the end"),
        ("other.a", "no field 'other' here .there is: input."),
        ("input.a in 5", "'in' needs a list"),
        ("input..a", "a path goes on with"),
        ("input[-1]", "a path goes on with"),
        ("input.a eq 1input", "followed by a space"),
        ("(" * 6 + "input" + ")" * 6, "more than 5 deep"),
        (" and ".join(["input"] * 26), "more than 50"),
        ("input.a eq " + '"' + "x" * 500 + '"', "at most 500 bytes"),
        ("\ud800", "UTF-8"),
        (7, "must be a string"),
    ],
)
def test_a_condition_that_cannot_be_read_is_refused_with_the_place(text: Any, complaint: str) -> None:
    with pytest.raises(DefinitionError, match=complaint):
        tree(text)


def test_the_limits_themselves_are_allowed() -> None:
    tree("(" * 5 + "input" + ")" * 5)
    tree(" and ".join(["input"] * 25))


def test_a_bad_condition_of_a_task_is_refused_where_it_is_declared() -> None:
    """T6."""
    with registry.isolated(), pytest.raises(DefinitionError, match="no field 'amount' here"):
        Task("charge", condition="amount gte 10")


def test_another_condition_is_another_fingerprint() -> None:
    with registry.isolated():
        prints = {Task(f"t{n}", condition=f"input.a eq {n}").definition.fingerprint for n in range(2)}
        assert len(prints) == 2


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        # missing: positive ops are false, ne and not are true
        ("input.a eq 1", {}, False),
        ("input.a ne 1", {}, True),
        ("not input.a eq 1", {}, True),
        ("input.a gt 1", {}, False),
        ("not input.a", {}, True),
        ("input.a in [null]", {}, False),
        ("input.a contains 1", {}, False),
        ("input.a.b exists", {"a": None}, False),
        # eq and ne
        ("input eq 1.0", 1, True),
        ('input eq "1"', 1, False),
        ("input eq true", 1, False),
        ("input ne null", 0, True),
        ('input eq {"a": [1, 2.0]}', {"a": [1.0, 2]}, True),
        # order
        ("input gte 10", 10, True),
        ("input lt 10", 9.99, True),
        ('input gt "Z"', "a", True),
        ('input gt "\U0001f600"', "\uffee", False),
        # in, contains, exists
        ("input in [1, 2]", 2.0, True),
        ("input in [[1]]", 1, False),
        ("input contains [1]", [[1]], True),
        ("input contains 1", [[1]], False),
        ('input contains "b"', "abc", True),
        ('input contains "a"', {"a": None}, True),
        ("input.a exists", {"a": None}, True),
        ("input[1] exists", [0], False),
        # a bare field
        *[("input", falsy, False) for falsy in (None, False, 0, 0.0, "", [], {})],
        *[("input", truthy, True) for truthy in (True, 0.1, " ", [None], {"": None})],
        # a decided side hides the error of another
        ("input.a gt 1 and input.b", {"a": "x", "b": 0}, False),
        ("input.a gt 1 or input.b", {"a": "x", "b": 1}, True),
    ],
)
def test_what_a_condition_says_of_a_value(text: str, value: Any, expected: bool) -> None:
    """F10b."""
    assert holds(text, value) is expected


@pytest.mark.parametrize(
    ("text", "value", "complaint"),
    [
        (
            "input.amount gte 1000",
            {"amount": "5000 EUR"},
            "input.amount: gte needs two numbers or two strings, not string",
        ),
        ("input.a lt 1", {"a": None}, "input.a: lt needs .* not null and number"),
        ("input.a gt true", {"a": True}, "input.a: gt"),
        ("input.a contains 1", {"a": 5}, "input.a: contains needs a list, string or object"),
        ("input.a contains 1", {"a": "1"}, "input.a: contains in a string needs a string"),
        ("not input.a gt 1", {"a": "x"}, "input.a: gt"),
        ("input.a gt 1 and input.b", {"a": "x", "b": 1}, "input.a: gt"),
        ("input.a gt 1 or input.b", {"a": "x", "b": 0}, "input.a: gt"),
    ],
)
def test_a_type_error_names_the_field(text: str, value: Any, complaint: str) -> None:
    with pytest.raises(ConditionTypeError, match=complaint):
        holds(text, value)


FIELDS = ["input", "input.a", "input[0]", 'input["b"]', "input.", "other"]
SIGNS = ["[", "]", "(", ")", ".", '"', "and", "or", "not", "eq", "gt", "in", "contains", "exists"]
VALUES = ["true", "null", "1", "-1.5", '"x"', "[1]", "{}"]
WORDS = st.sampled_from(FIELDS + SIGNS + VALUES)


@given(
    st.one_of(
        st.text(max_size=60), st.lists(WORDS, max_size=60).map(" ".join), st.lists(WORDS, max_size=9).map("".join)
    )
)
def test_whatever_text_comes_in_only_our_error_comes_out(text: str) -> None:
    with suppress(DefinitionError):
        assert parse_condition(text, roots={"input"}).text == text


@pytest.mark.parametrize("opening", ["[", '{"a":', "(", "not "])
def test_deep_nesting_is_an_error_of_ours(opening: str) -> None:
    with pytest.raises(DefinitionError):
        tree(f"input eq {opening * 99}")
