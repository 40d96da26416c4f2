"""Notices a value that would come back as another class: two classes of a union with the same JSON form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catbird_django.codec.contents import ANY_KEYS, contents, names_inside
from catbird_django.codec.paths import join
from catbird_django.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Iterator

Pair = tuple[str, object, object]


def check_class_kept(given: object, read: object, *, name: str, nested: bool) -> None:
    """Refuse when an object was given and one of an unrelated class is read back; inside it too when `nested`."""
    pairs: list[Pair] = [(name, given, read)]
    while pairs:
        path, given, read = pairs.pop()
        if _is_record(given) and _is_record(read) and not isinstance(given, type(read)):
            raise PayloadError(_advice(type(given).__qualname__, type(read).__qualname__), path=path)
        if nested:
            pairs.extend(_pairs_inside(path, given, read))


def _is_record(value: object) -> bool:
    return any(
        hasattr(type(value), mark) for mark in ("__dataclass_fields__", "__pydantic_fields__", "__struct_fields__")
    )


def _pairs_inside(path: str, given: object, read: object) -> Iterator[Pair]:
    if isinstance(given, set | frozenset):
        return
    inside = _named_parts(read)
    for name, part in _named_parts(given).items():
        if name in inside:
            yield join(path, name), part, inside[name]


def _named_parts(value: object) -> dict[object, object]:
    parts = contents(value, ANY_KEYS)
    return dict(zip(names_inside(value), parts, strict=True)) if parts else {}


def _advice(given: str, read: str) -> str:
    return (
        f"a {given} would be read back as {read}: pass a {read}, "
        f"or tell the alternatives apart by a field, as in kind: Literal[{given.lower()!r}]"
    )
