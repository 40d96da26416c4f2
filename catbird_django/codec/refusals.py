"""Says why a value or a type has no JSON form, and what to pass instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args, get_origin


class RefusalError(Exception):
    """One part of a value cannot be stored; the message says why."""


BYTES_HINT = "bytes have no JSON form: pass base64 text, or keep the data elsewhere and pass its key"
ITERATOR_HINT = "can be read only once: pass a list"
SECRET_HINT = "would be stored as asterisks: pass str, and redact the field by name"  # noqa: S105  # not one
MODEL_HINT = "pass the primary key and load the row in the task"
QUERYSET_HINT = "pass a list of primary keys, or list(queryset.values(...))"
LAZY_TEXT_HINT = "pass str(text): a translation is fixed when it is stored"


def why_not(value: object) -> str:
    """Say why this value is refused, with advice where there is some."""
    kind = type(value)
    return f"{kind.__qualname__} cannot be stored as JSON: {advice_for(kind) or 'pass its JSON form'}"


def why_not_type(annotation: Any) -> str | None:
    """Advise about an annotation that names a Django class, also as a part of it: `list[Order]`, `Order | None`."""
    kind = get_origin(annotation) or annotation
    own = _django_advice(kind) if isinstance(kind, type) else None
    return own or next(filter(None, map(why_not_type, get_args(annotation))), None)


def advice_for(kind: type) -> str | None:
    """Return what to pass instead of an object of this class, if we know."""
    if issubclass(kind, bytes | bytearray | memoryview):
        return BYTES_HINT
    if issubclass(kind, Iterator):
        return ITERATOR_HINT
    if issubclass(kind, Mapping):
        return "pass dict(value)"
    if hasattr(kind, "get_secret_value"):
        return SECRET_HINT
    return _django_advice(kind) or ("pass a name and look it up" if issubclass(kind, Callable) else None)  # type: ignore[arg-type]  # an ABC, but typed as a special form


def _django_advice(kind: type) -> str | None:
    for module, name, hint in (
        ("django.db.models", "Model", MODEL_HINT),
        ("django.db.models", "QuerySet", QUERYSET_HINT),
        ("django.db.models", "Manager", QUERYSET_HINT),
        ("django.utils.functional", "Promise", LAZY_TEXT_HINT),
    ):
        # A value of one of these classes proves that the module is loaded; otherwise there is nothing to recognise.
        known = getattr(sys.modules.get(module), name, None)
        if known is not None and issubclass(kind, known):
            return hint
    return None
