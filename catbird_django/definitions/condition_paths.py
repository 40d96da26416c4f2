"""Whether the fields of a condition can be there at all, by the type of the value they look into (F2, F10).

A field that its type does not have would be missing in every run, and the step skipped without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from catbird_django.definitions.conditions.parser import Tree

Schema = dict[str, Any]
Path = Sequence[str | int]

ANYTHING: Schema = {}


def fields_of(tree: Tree) -> Iterator[tuple[str, list[str | int]]]:
    """Every field of a condition: as it was written, and its path."""
    if "path" in tree:
        yield tree["field"], tree["path"]
    for side in tree.get("of", ()):
        yield from fields_of(side)


def known_names(schema: Schema, path: Path) -> list[str] | None:
    """The names that exist where a path comes to its end too early; None where it may lead somewhere."""
    here = list(_alternatives(schema, schema))
    for step in path:
        further = [part for one in here for inside in _inside(one, step) for part in _alternatives(inside, schema)]
        if not further:
            return [name for one in here for name in one.get("properties", {})]
        here = further
    return None


def _alternatives(schema: Any, whole: Schema) -> Iterator[Schema]:
    """The schema, with references and unions resolved."""
    left, met = [schema], set()
    while left:
        one = left.pop()
        if not isinstance(one, dict):
            yield ANYTHING
        elif (reference := one.get("$ref")) is not None:
            # A type may hold itself.
            if reference not in met:
                met.add(reference)
                left.append(whole.get("$defs", {}).get(reference.removeprefix("#/$defs/"), ANYTHING))
        elif choices := one.get("anyOf") or one.get("oneOf") or one.get("allOf"):
            left += choices
        else:
            yield one


def _inside(schema: Schema, step: str | int) -> list[Any]:
    kinds = schema.get("type")
    if kinds is None:
        # The values of an enum or Literal of several kinds have nothing inside; of anything else we know nothing.
        return [] if "enum" in schema or "const" in schema else [ANYTHING]
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if isinstance(step, str):
        return _member(schema, step) if "object" in kinds else []
    return _element(schema, step) if "array" in kinds else []


def _member(schema: Schema, name: str) -> list[Any]:
    if name in schema.get("properties", {}):
        return [schema["properties"][name]]
    # A record without a word about more is closed: what is not in the type, is not stored.
    more = schema.get("additionalProperties", "properties" not in schema or "patternProperties" in schema)
    return [] if more is False else [more]


def _element(schema: Schema, place: int) -> list[Any]:
    fixed = schema.get("prefixItems", [])
    if place < len(fixed):
        return [fixed[place]]
    is_full = schema.get("maxItems", place + 1) <= place
    return [] if is_full or schema.get("items") is False else [schema.get("items", ANYTHING)]
