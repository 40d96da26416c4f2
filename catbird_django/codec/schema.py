"""The JSON Schema of a type: the library's own, with Decimals, named tuples and Structs made recognisable."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from catbird_django.codec.structs import STRUCT_SCHEMA

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import core_schema

# Our own keywords: the names of a tuple's places, and the labels of an enum's members.
NAMES = "x-names"
LABELS = "x-labels"


class _Generator(GenerateJsonSchema):
    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        return {**super().decimal_schema(schema), "format": "decimal"}

    def named_tuple_schema(self, schema: core_schema.NamedTupleSchema) -> JsonSchemaValue:
        names = [field["name"] for field in schema["fields"]]
        return {**super().named_tuple_schema(schema), NAMES: names}

    def call_schema(self, schema: core_schema.CallSchema) -> JsonSchemaValue:
        """Before pydantic 2.14 a named tuple is a call of its class."""
        names = getattr(schema["function"], "_fields", None)
        return {**super().call_schema(schema), **({NAMES: list(names)} if names else {})}

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        return {**super().enum_schema(schema), LABELS: [_label(member) for member in schema["members"]]}


def json_schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """Return the JSON Schema of the JSON form that is accepted."""
    definitions: dict[str, Any] = {}
    schema = _with_structs(adapter.json_schema(schema_generator=_Generator), definitions)
    if definitions:
        schema["$defs"] = schema.get("$defs", {}) | definitions
    return schema  # type: ignore[no-any-return]  # an object stays an object


def _with_structs(schema: Any, definitions: dict[str, Any]) -> Any:
    """Put the schema of each Struct in its place, and collect the definitions it refers to."""
    if isinstance(schema, list):
        return [_with_structs(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {key: _with_structs(part, definitions) for key, part in schema.items() if key != STRUCT_SCHEMA}
    if STRUCT_SCHEMA in schema:
        struct = json.loads(schema[STRUCT_SCHEMA])
        definitions.update(struct.pop("$defs", {}))
        whole |= struct
    return whole


def _label(member: Any) -> str:
    """Return what a person calls a member: the label of Django's choices, else its name."""
    return str(getattr(member, "label", None) or member.name.replace("_", " ").capitalize())
