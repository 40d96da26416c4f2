"""Types as people write them, for messages."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

UNIONS = (Union, types.UnionType)


def type_name(annotation: Any) -> str:
    """Write a type as its author would: `Order`, `list[int]`, `bool | None`."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is Ellipsis:
        return "..."
    if origin in UNIONS:
        return " | ".join(map(type_name, parts))
    if origin is Annotated:
        return type_name(parts[0])
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, parts))}]"
    if origin is not None and parts:
        return f"{type_name(origin)}[{', '.join(map(_part_name, parts))}]"
    return str(getattr(annotation, "__name__", None) or repr(annotation).removeprefix("typing."))


def _part_name(part: Any) -> str:
    # Callable[[int], str] has a list among its parts.
    return f"[{', '.join(map(type_name, part))}]" if isinstance(part, list) else type_name(part)
