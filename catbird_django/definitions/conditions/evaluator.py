"""Evaluates a condition in Python, as `sql/conditions.sql` does in the database; the two agree (F10b)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from catbird_django.definitions.conditions.parser import Tree
from catbird_django.errors import CatbirdError

MISSING = object()
ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "gt": lambda left, right: bool(left > right),
    "gte": lambda left, right: bool(left >= right),
    "lt": lambda left, right: bool(left < right),
    "lte": lambda left, right: bool(left <= right),
}


class ConditionTypeError(CatbirdError, TypeError):
    """A value has a type that the condition cannot compare; the message names the field."""


def evaluate(tree: Tree, values: Mapping[str, Any]) -> bool:
    """Say whether the condition holds for these values, by root; raise ConditionTypeError where types do not fit."""
    match tree["op"]:
        case "and":
            return _decided(tree["of"], values, by=False)
        case "or":
            return _decided(tree["of"], values, by=True)
        case "not":
            return not evaluate(tree["of"][0], values)
        case _:
            return _test(tree, _find(tree["path"], values))


def _decided(sides: list[Tree], values: Mapping[str, Any], *, by: bool) -> bool:
    """`and` is decided by a false side, `or` by a true one; a decided side hides the error of another."""
    error: ConditionTypeError | None = None
    for side in sides:
        try:
            if evaluate(side, values) is by:
                return by
        except ConditionTypeError as found:
            error = error or found
    if error is not None:
        raise error
    return not by


def _find(path: list[str | int], values: Any) -> Any:
    for step in path:
        if not _leads_somewhere(step, values):
            return MISSING
        values = values[step]
    return values


def _leads_somewhere(step: str | int, values: Any) -> bool:
    if isinstance(step, str):
        return isinstance(values, Mapping) and step in values
    return isinstance(values, list) and step < len(values)


def _test(tree: Tree, found: Any) -> bool:
    op = tree["op"]
    if found is MISSING:
        return bool(op == "ne")
    if op == "truthy":
        return bool(found)
    if op == "exists":
        return True
    return _compare(op, found, tree["value"], tree["field"])


def _compare(op: str, left: Any, right: Any, field: str) -> bool:
    if op in ORDER:
        return _ordered(op, left, right, field)
    if op == "contains":
        return _contains(left, right, field)
    if op == "in":
        if not isinstance(right, list):
            raise ConditionTypeError(f"{field}: in needs a list on the right, not {_kind(right)}")
        return any(_equal(left, one) for one in right)
    return _equal(left, right) is (op == "eq")


def _ordered(op: str, left: Any, right: Any, field: str) -> bool:
    kinds = _kind(left), _kind(right)
    if kinds == ("number", "number"):
        return ORDER[op](_exact(left), _exact(right))
    if kinds == ("string", "string"):
        return ORDER[op](left, right)
    raise ConditionTypeError(f"{field}: {op} needs two numbers or two strings, not {kinds[0]} and {kinds[1]}")


def _contains(left: Any, right: Any, field: str) -> bool:
    kind = _kind(left)
    if kind == "array":
        return any(_equal(one, right) for one in left)
    if kind not in {"string", "object"}:
        raise ConditionTypeError(f"{field}: contains needs a list, string or object on the left, not {kind}")
    if not isinstance(right, str):
        raise ConditionTypeError(f"{field}: contains in a {kind} needs a string on the right, not {_kind(right)}")
    return right in left


def _equal(left: Any, right: Any) -> bool:
    kind = _kind(left)
    if kind != _kind(right):
        return False
    if kind == "number":
        return _exact(left) == _exact(right)
    if kind == "array":
        return len(left) == len(right) and all(map(_equal, left, right))
    if kind == "object":
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    return bool(left == right)


def _exact(number: int | float | Decimal) -> Decimal:
    """The number as JSON writes it, which is what PostgreSQL has; a float may be a little beside it."""
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


def _kind(value: Any) -> str:
    """The JSON type, as jsonb_typeof() calls it."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float() | Decimal():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
