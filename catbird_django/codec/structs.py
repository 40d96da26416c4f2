"""Lets msgspec Structs take part in typed values, when msgspec is there; msgspec itself reads and writes them."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, PydanticCustomError, core_schema, to_json, to_jsonable_python

STRUCT_ERROR = "struct"
STRUCT_SCHEMA = "struct"


def support_structs() -> None:
    """Give Struct the methods by which pydantic lets a foreign class describe itself.

    On the base class, because a Struct may hide in the field of a dataclass, where an annotation cannot be wrapped.
    Only once a project has loaded msgspec: without it there is no Struct to support.
    """
    msgspec = sys.modules.get("msgspec")
    struct = getattr(msgspec, "Struct", None)
    if struct is not None and not hasattr(struct, "__get_pydantic_core_schema__"):
        struct.__get_pydantic_core_schema__ = classmethod(_core_schema)
        struct.__get_pydantic_json_schema__ = classmethod(_json_schema)


def to_builtins(value: Any) -> Any:
    """Return the JSON form of a Struct; raise TypeError for anything else (it is the encoder's last resort)."""
    if not hasattr(type(value), "__struct_fields__"):
        raise TypeError(type(value).__qualname__)
    import msgspec

    return msgspec.to_builtins(value, enc_hook=to_jsonable_python)


def _core_schema(_cls: type, source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
    def convert(data: Any) -> Any:
        return _from_builtins(data, source)

    return core_schema.no_info_plain_validator_function(
        convert, serialization=core_schema.plain_serializer_function_ser_schema(to_builtins)
    )


def _json_schema(cls: type, _schema: CoreSchema, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
    """Return msgspec's schema as text: pydantic would look in vain for the definitions it refers to."""
    import msgspec

    (schema,), definitions = msgspec.json.schema_components(
        [cls],
        ref_template=f"#/$defs/{STRUCT_SCHEMA}.{{name}}",
        schema_hook=lambda kind: TypeAdapter(kind).json_schema(),
    )
    named = {f"{STRUCT_SCHEMA}.{name}": definition for name, definition in definitions.items()}
    return {STRUCT_SCHEMA: json.dumps(schema | {"$defs": named})}


def _from_builtins(data: Any, source: Any) -> Any:
    import msgspec

    try:
        return msgspec.convert(data, source, str_keys=True, dec_hook=_from_json_form)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at ")
        raise PydanticCustomError(STRUCT_ERROR, "{reason}", {"reason": reason, "place": place.strip("`")}) from None


def _from_json_form(kind: type, data: Any) -> Any:
    """Read a part that msgspec does not know, such as a pydantic model inside a Struct."""
    return TypeAdapter(kind).validate_json(to_json(data), strict=True)
