"""Builds the library's adapter for an annotation, and reads off what the codec must know about the type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import TypeAdapter

from catbird_django.codec.contents import STRING_KEYS, TYPED_KEYS, KeyTypes
from catbird_django.codec.refusals import BYTES_HINT, ITERATOR_HINT, SECRET_HINT, why_not_type
from catbird_django.codec.structs import support_structs
from catbird_django.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Iterator

Node: TypeAlias = dict[str, Any]

_UNSUPPORTED = {
    "bytes": BYTES_HINT,
    "callable": "a callable has no JSON form: pass a name and look it up",
    "complex": "a complex number has no JSON form: pass its two parts",
    "generator": f"an iterable {ITERATOR_HINT}",
    "is-instance": "it has no JSON form: declare a dataclass, or what identifies the object",
    "is-subclass": "a class has no JSON form: pass a name and look it up",
    "secret": f"a secret {SECRET_HINT}",
}
# A choice between these is told apart by its JSON form alone.
_SCALARS = frozenset({"none", "bool", "int", "float", "decimal", "str", "literal", "enum", "uuid", "date", "datetime",
                      "time", "timedelta", "any"})  # fmt: skip
# Parts of a schema that are data or code rather than types, or that are never used for JSON in strict mode.
_SKIPPED = frozenset({"metadata", "default", "config", "serialization", "cls", "python_schema", "lax_schema"})


@dataclass(frozen=True, slots=True)
class Traits:
    """What encoding a type depends on."""

    key_types: KeyTypes
    # None leaves the question to types that have answered it themselves.
    unknown_fields: Literal["forbid"] | None
    has_alternatives: bool
    # Or something that may turn out to be a float.
    has_floats: bool


def build_adapter(annotation: Any) -> TypeAdapter[Any]:
    """Build the adapter; raise DefinitionError for a type that has no JSON form or is not fully defined."""
    support_structs()
    try:
        adapter = TypeAdapter(annotation)
    except Exception as error:
        raise _unsupported(annotation, why_not_type(annotation) or _first_line(error)) from error
    if not adapter.pydantic_complete:
        raise _unsupported(annotation, "a name in it is not defined: define the types at module level, before the task")
    for node in _nodes(adapter.core_schema):
        if hint := _UNSUPPORTED.get(_kind(node)):
            raise _unsupported(annotation, hint)
    return adapter


def traits_of(adapter: TypeAdapter[Any]) -> Traits:
    """Read off how values of the type are encoded."""
    nodes = list(_nodes(adapter.core_schema))
    return Traits(
        key_types=TYPED_KEYS if any(map(_has_typed_keys, nodes)) else STRING_KEYS,
        unknown_fields=None if any(map(_decides_on_unknown_fields, nodes)) else "forbid",
        has_alternatives=any(map(_has_alternatives, nodes)),
        has_floats=any(map(_has_floats, nodes)),
    )


def _nodes(schema: Any) -> Iterator[Node]:
    if isinstance(schema, dict):
        yield schema
        for name, part in schema.items():
            if name not in _SKIPPED:
                yield from _nodes(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from _nodes(part)


def _kind(node: Node) -> str:
    serializer = node.get("serialization", {}).get("function")
    is_secret = getattr(serializer, "__name__", "").startswith("_serialize_secret")
    return "secret" if is_secret else str(node.get("type"))


def _has_typed_keys(node: Node) -> bool:
    if node.get("type") == "function-plain":
        return True  # a Struct, or another type that reads itself: what it holds cannot be seen from here
    return node.get("type") == "dict" and node.get("keys_schema", {}).get("type", "any") not in {"any", "str"}


def _decides_on_unknown_fields(node: Node) -> bool:
    return "extra_fields_behavior" in node.get("config", {})


def _has_alternatives(node: Node) -> bool:
    choices = node.get("choices", ()) if node.get("type") == "union" else ()
    kinds = [(choice[0] if isinstance(choice, tuple) else choice)["type"] for choice in choices]
    return sum(kind not in _SCALARS for kind in kinds) > 1


def _has_floats(node: Node) -> bool:
    kind = str(node.get("type"))
    return kind in {"any", "float"} or kind.startswith("function-")


def _unsupported(annotation: Any, reason: str) -> DefinitionError:
    shown = annotation.__qualname__ if isinstance(annotation, type) else repr(annotation)
    return DefinitionError(f"{shown} cannot be the type of a stored value: {reason}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(". Set `arbitrary_types_allowed")[0]
