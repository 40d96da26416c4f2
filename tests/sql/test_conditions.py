"""F10: `_cb_evaluate_condition` says what the evaluator in Python says, of every condition and every value."""

from __future__ import annotations

import json
from typing import Any

from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catbird_django.definitions.conditions import ConditionTypeError, evaluate, parse_condition

# Few keys and few values, so that fields are found and values meet.
KEYS = st.sampled_from(["a", "b", "c"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 1.0, -0.0, 2, 0.1, 1e23, 10**23, 2**53 + 1, float(2**53)]),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "a", "b", "ab", "Z", "é", "\uffee", "\U0001f600"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)
STEPS = st.one_of(KEYS.map(lambda key: f".{key}"), st.integers(0, 2).map(lambda place: f"[{place}]"))
FIELDS = st.lists(STEPS, max_size=2).map(lambda steps: "input" + "".join(steps))
OPS = st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte", "contains"])


def written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


TESTS = st.one_of(
    FIELDS,
    FIELDS.map(lambda field: f"{field} exists"),
    st.tuples(FIELDS, OPS, VALUES).map(lambda test: f"{test[0]} {test[1]} {written(test[2])}"),
    st.tuples(FIELDS, st.lists(VALUES, max_size=3)).map(lambda test: f"{test[0]} in {written(test[1])}"),
)
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        inner.map(lambda one: f"not ({one})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda two: f"({two[0]}) {two[1]} {two[2]}"),
    ),
    max_leaves=4,
).filter(lambda text: len(text.encode()) <= 500 and text.count("((((") == 0)


def in_python(tree: dict[str, Any], value: Any) -> tuple[bool | None, str | None]:
    try:
        return evaluate(tree, {"input": value}), None
    except ConditionTypeError as error:
        return None, str(error)


def in_sql(tree: dict[str, Any], value: Any) -> tuple[bool | None, str | None]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT verdict, error FROM _cb_evaluate_condition(%s::jsonb, %s::jsonb)",
            [json.dumps(tree), json.dumps({"input": value})],
        )
        [answer] = cursor.fetchall()
        return answer


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(CONDITIONS, VALUES)
def test_sql_and_python_agree(text: str, value: Any) -> None:
    """Also on the text of the error."""
    tree = parse_condition(text, roots={"input"}).tree

    assert in_sql(tree, value) == in_python(tree, value)


def test_a_condition_that_names_a_value_twice_as_long_as_an_integer_is_decided() -> None:
    tree = parse_condition("input gt 1e300", roots={"input"}).tree

    assert in_sql(tree, 10**400) == (True, None)


def test_a_tree_that_no_parser_of_ours_made_is_no_exception() -> None:
    """F10: it never raises."""
    assert in_sql({"op": "in", "field": "input", "path": ["input"], "value": 7}, 1) == (
        None,
        "input: in needs a list on the right, not number",
    )
