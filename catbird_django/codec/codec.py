"""The codec of one type: its values to JSON text, JSON text to its values, and what the type looks like."""

from __future__ import annotations

from functools import cache
from typing import Any, Generic, Literal, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from catbird_django.codec.adapters import build_adapter, traits_of
from catbird_django.codec.describe import Field, describe
from catbird_django.codec.limits import check_finite, check_text, check_value
from catbird_django.codec.problems import payload_error
from catbird_django.codec.readback import check_class_kept
from catbird_django.codec.schema import json_schema
from catbird_django.codec.structs import to_builtins
from catbird_django.codec.untyped import as_text, decode_any, encode_any, unwritable, write
from catbird_django.errors import PayloadError

T = TypeVar("T")

SMALL = 2**31

_JSON_TYPES = frozenset({dict, list, str, int, float, bool, type(None)})


class Codec(Generic[T]):
    """Encodes and decodes values of one declared type; made by `codec_for`."""

    def __init__(self, annotation: Any, adapter: TypeAdapter[Any]) -> None:
        self._annotation = annotation
        self._adapter = adapter
        self._traits = traits_of(adapter)
        self._validate_json = adapter.validator.validate_json
        self._to_json = adapter.serializer.to_json
        self._is_nothing = annotation in (None, type(None))

    def encode(self, value: object, *, name: str, max_bytes: int) -> str:
        """Return compact JSON text for a value of the type or for its JSON form.

        Raise PayloadError, with a path that begins with `name`, when the value is not of the type, cannot be stored
        exactly, or takes more than `max_bytes`. What is returned, `decode` can read: it has been read once here.
        """
        # Nothing, and small numbers, are what most handlers take and give; they are what they look like.
        if value is None and self._is_nothing:
            return "null"
        if type(value) is int and self._annotation is int and -SMALL < value < SMALL:
            return str(value)
        check_value(value, name=name, max_bytes=max_bytes, key_types=self._traits.key_types)
        # An object of the very class is complete. Anything else may lack fields, and their defaults are filled in now,
        # so that every attempt of a run sees the same `default_factory` value.
        if type(value) is self._annotation:
            text = self._checked(self._write(value, name=name), name=name, max_bytes=max_bytes)
            self._read(text, given=value, name=name)
            return text
        draft = self._checked(write(value, name=name, key_types=self._traits.key_types), name=name, max_bytes=max_bytes)
        typed = self._read(draft, given=value, name=name)
        return self._checked(self._write(typed, name=name), name=name, max_bytes=max_bytes)

    def decode(self, text: str | bytes, *, name: str) -> T:
        """Return the value in the text; raise PayloadError naming the path when it is not of the type.

        Nothing is coerced: "5" is not an int. Unknown fields are left out, so that a worker of the previous release
        can read what the next one wrote.
        """
        return self._parse(as_text(text, name=name), name=name, unknown_fields=None)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what `encode` accepts as the JSON form."""
        return json_schema(self._adapter)

    def fields(self) -> tuple[Field, ...]:
        """Describe the type as form fields; a type without fields of its own is one field named `value`."""
        return describe(self.json_schema())

    def _read(self, text: str, *, given: object, name: str) -> T:
        typed = self._parse(text, name=name, unknown_fields=self._traits.unknown_fields)
        if self._traits.has_alternatives or not (type(given) is type(typed) or type(given) in _JSON_TYPES):
            check_class_kept(given, typed, name=name, nested=self._traits.has_alternatives)
        return typed

    def _parse(self, text: str, *, name: str, unknown_fields: Literal["forbid"] | None) -> T:
        try:
            value = self._validate_json(text, strict=True, extra=unknown_fields)
        except ValidationError as error:
            # Without its cause: the library's message shows the values, and payloads stay out of logs.
            raise payload_error(error, text, name=name) from None
        except Exception as error:
            # A __post_init__ or a validator of the type may raise anything.
            raise PayloadError(f"{type(error).__name__} in the declared type: {error}", path=name) from error
        if self._traits.has_floats:
            check_finite(value, text, name=name)
        return cast("T", value)

    def _checked(self, raw: bytes, *, name: str, max_bytes: int) -> str:
        return check_text(raw, name=name, max_bytes=max_bytes, has_floats=self._traits.has_floats)

    def _write(self, value: object, *, name: str) -> bytes:
        try:
            return self._to_json(value, by_alias=True, round_trip=True, warnings=False, fallback=to_builtins)
        except PydanticSerializationError as error:
            raise unwritable(value, error, name=name, key_types=self._traits.key_types) from None


class AnyCodec(Codec[Any]):
    """The codec of values without a declared type."""

    def encode(self, value: object, *, name: str, max_bytes: int) -> str:
        """Return compact JSON text; raise PayloadError when the value cannot be stored exactly."""
        return encode_any(value, name=name, max_bytes=max_bytes)

    def decode(self, text: str | bytes, *, name: str) -> Any:
        """Return the JSON value in the text."""
        return decode_any(text, name=name)


def codec_for(annotation: Any) -> Codec[Any]:
    """Return the codec of a type, the same one each time; raise DefinitionError when it cannot be supported."""
    try:
        # `int | str` equals `str | int`, and for an ambiguous value the order counts: hence the spelling in the key.
        return _cached_codec(annotation, repr(annotation))
    except TypeError:
        return _codec(annotation)  # an annotation that cannot be hashed, such as Annotated[int, Field(gt=0)]


def _codec(annotation: Any) -> Codec[Any]:
    kind = AnyCodec if annotation is Any or annotation is object else Codec
    return kind(annotation, build_adapter(annotation))


@cache
def _cached_codec(annotation: Any, _spelling: str) -> Codec[Any]:
    return _codec(annotation)
