"""Values without a declared type: anything with a JSON form goes in, plain JSON values come out."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic_core import PydanticSerializationError, from_json, to_json

from catbird_django.codec.contents import STRING_KEYS, KeyTypes
from catbird_django.codec.limits import check_finite, check_text, check_value, explain
from catbird_django.codec.structs import to_builtins
from catbird_django.errors import PayloadError

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
else:
    # Whatever comes out of JSON text is Json, so there is nothing to check at run time.
    Json = Any


def encode_any(value: object, *, name: str, max_bytes: int) -> str:
    """Return compact JSON text; raise PayloadError when the value cannot be stored exactly."""
    check_value(value, name=name, max_bytes=max_bytes)
    return check_text(write(value, name=name), name=name, max_bytes=max_bytes, has_floats=True)


def decode_any(text: str | bytes, *, name: str) -> Json:
    """Return the JSON value in the text; of a repeated key the last one counts, as in jsonb."""
    text = as_text(text, name=name)
    try:
        value: Json = from_json(text)
    except ValueError as error:
        raise PayloadError(f"not valid JSON: {error}", path=name) from None
    check_finite(value, text, name=name)
    return value


def write(value: object, *, name: str, key_types: KeyTypes = STRING_KEYS) -> bytes:
    """Encode a checked value by what it is, whatever type was declared for it."""
    try:
        return to_json(value, fallback=_last_resort, round_trip=True)
    except PydanticSerializationError as error:
        raise unwritable(value, error, name=name, key_types=key_types) from None


def _last_resort(value: object) -> Any:
    return list(value) if isinstance(value, deque) else to_builtins(value)


def unwritable(value: object, error: Exception, *, name: str, key_types: KeyTypes) -> PayloadError:
    """Make a PayloadError of the encoder's refusal, with the path of the part it stumbled over."""
    return explain(value, name=name, key_types=key_types) or PayloadError(f"cannot be stored: {error}", path=name)


def as_text(text: str | bytes, *, name: str) -> str:
    """Return the text as str."""
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise PayloadError(f"not UTF-8: {error.reason} at byte {error.start}", path=name) from None
