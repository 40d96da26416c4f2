"""JSON laid out for reading."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catbird_django.monitoring.json_text import laid_out

LIMIT = 10_000
leaves = st.none() | st.booleans() | st.integers() | st.text()
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


@given(values)
def test_it_looks_as_python_would_indent_it(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)

    assert laid_out(text, limit=1_000_000) == json.dumps(value, ensure_ascii=False, indent=2)


@pytest.mark.parametrize(
    "number", ["9007199254740993", "123456789012345678901234567890", "1.10", "0.1234567890123456789"]
)
def test_numbers_keep_every_digit(number: str) -> None:
    assert laid_out(f'{{"n": {number}}}', limit=LIMIT) == f'{{\n  "n": {number}\n}}'


def test_a_deep_value_costs_no_stack() -> None:
    text = "[" * 5_000 + "]" * 5_000

    assert laid_out(text, limit=LIMIT).endswith("…")


def test_a_long_text_is_cut_where_the_limit_is() -> None:
    shown = laid_out(json.dumps(list(range(10_000))), limit=100)

    assert len(shown) == 101
    assert shown.endswith("…")


def test_a_text_that_ends_inside_a_string_is_shown_as_far_as_it_goes() -> None:
    assert laid_out('{"a": "[1, 2', limit=LIMIT) == '{\n  "a": "[1, 2'
