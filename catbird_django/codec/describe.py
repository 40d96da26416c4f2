"""Describes a type as the fields of a form, read off its JSON Schema.

A label is the `title` of the field, else made of its name; a help text is its `description`; both can be given with
`Annotated[int, pydantic.Field(title=…, description=…)]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

from catbird_django.codec.schema import LABELS, NAMES

Schema: TypeAlias = Mapping[str, Any]

_CONSTRAINTS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
                          "maxLength", "pattern", "minItems", "maxItems", "uniqueItems"})  # fmt: skip


class FieldKind(StrEnum):
    """What a person enters, and so which widget suits."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    DATE = "date"
    DATETIME = "datetime"
    TIME = "time"
    DURATION = "duration"
    UUID = "uuid"
    CHOICE = "choice"
    LIST = "list"
    TUPLE = "tuple"
    MAPPING = "mapping"
    OBJECT = "object"
    UNION = "union"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a form. Values are in their JSON form; `choices` pairs them with labels.

    `required`: the key must be there. `nullable`: null is a value. `fields`: what is inside an object, or the places of
    a tuple. `item`: what a list or mapping holds. `variants`: the alternatives of a union.
    """

    name: str
    kind: FieldKind
    label: str
    help: str = ""
    required: bool = True
    nullable: bool = False
    default: Any = None
    choices: tuple[tuple[Any, str], ...] = ()
    constraints: Mapping[str, Any] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    item: Field | None = None
    variants: tuple[Field, ...] = ()


_FORMATS = {
    "decimal": FieldKind.DECIMAL,
    "date": FieldKind.DATE,
    "date-time": FieldKind.DATETIME,
    "time": FieldKind.TIME,
    "duration": FieldKind.DURATION,
    "uuid": FieldKind.UUID,
}
_TYPES = {
    "string": FieldKind.TEXT,
    "integer": FieldKind.INTEGER,
    "number": FieldKind.NUMBER,
    "boolean": FieldKind.BOOLEAN,
    "array": FieldKind.LIST,
    "object": FieldKind.MAPPING,
}


def describe(schema: Schema) -> tuple[Field, ...]:
    """Return the fields of a type with fields; any other type is one field named `value`."""
    whole = _Reader(definitions=schema.get("$defs", {})).field("value", schema)
    return whole.fields if whole.kind is FieldKind.OBJECT else (whole,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Reads fields off one JSON Schema document."""

    definitions: Schema
    # What encloses the field: a type that contains itself is described once, and below that a person edits JSON.
    enclosing: frozenset[str] = frozenset()

    def field(self, name: str, schema: Schema, *, required: bool = True) -> Field:
        own_title = schema.get("title")
        reader, schema, nullable = self.opened(schema)
        kind = FieldKind.JSON if "$ref" in schema else _kind_of(schema)
        return Field(
            name=name,
            kind=kind,
            label=own_title or name.replace("_", " ").strip().capitalize(),
            help=schema.get("description", ""),
            required=required,
            nullable=nullable,
            default=schema.get("default"),
            choices=_choices(schema),
            constraints={key: schema[key] for key in sorted(_CONSTRAINTS & schema.keys())},
            fields=tuple(reader.inside(kind, schema)),
            item=reader.item(kind, schema),
            variants=tuple(reader.variants(kind, schema)),
        )

    def opened(self, schema: Schema) -> tuple[_Reader, Schema, bool]:
        """Follow the reference and take out the null; the schema is still a reference when it leads back up."""
        reader, schema = self.resolved(schema)
        choices = schema.get("anyOf", ())
        others = [choice for choice in choices if choice.get("type") != "null"]
        if len(others) == len(choices):
            return reader, schema, schema.get("type") == "null"
        beside = {key: part for key, part in schema.items() if key != "anyOf"}
        if len(others) > 1:
            return reader, {"anyOf": others, **beside}, True
        reader, schema = reader.resolved(others[0])
        return reader, {**schema, **beside}, True

    def resolved(self, schema: Schema) -> tuple[_Reader, Schema]:
        reference = schema.get("$ref", "").removeprefix("#/$defs/")
        if not reference or reference in self.enclosing:
            return self, schema
        # What stands beside a reference, a default or a description, counts more than what it leads to.
        beside = {key: part for key, part in schema.items() if key != "$ref"}
        inside = replace(self, enclosing=self.enclosing | {reference})
        return inside.resolved({**self.definitions[reference], **beside})

    def inside(self, kind: FieldKind, schema: Schema) -> Iterator[Field]:
        if kind is FieldKind.TUPLE:
            yield from (self.field(str(place), part) for place, part in enumerate(schema["prefixItems"]))
        elif kind is FieldKind.OBJECT:
            yield from (self.field(name, part, required=required) for name, part, required in _members(schema))

    def item(self, kind: FieldKind, schema: Schema) -> Field | None:
        if kind not in {FieldKind.LIST, FieldKind.MAPPING}:
            return None
        part = schema.get("items" if kind is FieldKind.LIST else "additionalProperties")
        return self.field("item", part if isinstance(part, dict) else {})

    def variants(self, kind: FieldKind, schema: Schema) -> Iterator[Field]:
        choices = (schema.get("anyOf") or schema["oneOf"]) if kind is FieldKind.UNION else ()
        for choice in choices:
            _, opened = self.resolved(choice)
            yield self.field(opened.get("title") or opened.get("type", "value"), choice)


def _kind_of(schema: Schema) -> FieldKind:
    if "enum" in schema or "const" in schema:
        return FieldKind.CHOICE
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    if "anyOf" in schema or "oneOf" in schema:
        return FieldKind.UNION
    if "properties" in schema or NAMES in schema:
        return FieldKind.OBJECT
    if "prefixItems" in schema:
        return FieldKind.TUPLE
    return _TYPES.get(schema.get("type", ""), FieldKind.JSON)


def _members(schema: Schema) -> Iterator[tuple[str, Schema, bool]]:
    if NAMES in schema:
        for place, name in enumerate(schema[NAMES]):
            yield name, schema["prefixItems"][place], place < schema.get("minItems", 0)
    else:
        for name, part in schema["properties"].items():
            yield name, part, name in schema.get("required", ())


def _choices(schema: Schema) -> tuple[tuple[Any, str], ...]:
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    return tuple(zip(values, schema.get(LABELS) or map(str, values), strict=True))
