"""Opens a Python value as the encoder will: what is inside it, by name or by place."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from math import isfinite
from typing import Any, TypeAlias
from uuid import UUID

from pydantic import BaseModel, RootModel

from catbird_django.codec.refusals import Refused, why_not

# Whole numbers of any size fit jsonb, but Python itself refuses to write or read more than 4300 digits.
MAX_DIGITS = 1000
_TOO_LARGE = 10**MAX_DIGITS

Parts: TypeAlias = dict[Any, object] | Sequence[object] | None
KeyTypes: TypeAlias = tuple[type, ...]
Opener: TypeAlias = Callable[[Any, KeyTypes], Parts]

STRING_KEYS: KeyTypes = (str,)
TYPED_KEYS: KeyTypes = (str, int, float, Decimal, date, time, timedelta, UUID, Enum)


def contents(item: object, key_types: KeyTypes) -> Parts:
    """Return what is inside, or None for a leaf; raise Refused when the encoder would change or drop the item.

    A class we do not know is a leaf: whether it has a JSON form is the library's business.
    """
    kind: type[Any] = type(item)
    if kind is dict:
        return _open_dict(item, key_types)  # type: ignore[arg-type]  # narrowed by `kind`, which mypy does not follow
    if kind is list:
        return item  # type: ignore[return-value]  # as above
    return _opener_for(kind)(item, key_types)


@lru_cache(maxsize=4096)
def _opener_for(kind: type) -> Opener:
    if issubclass(kind, Enum):
        return _open_enum
    if hasattr(kind, "get_secret_value"):
        return _refuse
    if hasattr(kind, "__struct_fields__"):
        return _open_struct
    if hasattr(kind, "__dataclass_fields__"):
        return _open_dataclass
    return next((opener for base, opener in _OPENERS if issubclass(kind, base)), _leaf)


def _leaf(_item: object, _key_types: KeyTypes) -> None:
    return None


def _open_dict(item: dict[Any, object], key_types: KeyTypes) -> Parts:
    for key in item:
        if type(key) is not str and not isinstance(key, key_types):
            raise Refused(
                f"a key is {type(key).__name__}, and JSON keys are strings: pass str(key), or declare dict[…]"
            )
    return item


def _open_places(item: Any, _key_types: KeyTypes) -> Parts:
    return tuple(item)


def _open_enum(item: Enum, key_types: KeyTypes) -> Parts:
    return contents(item.value, key_types)


def _open_root(item: RootModel[Any], key_types: KeyTypes) -> Parts:
    return contents(item.root, key_types)


def _open_model(item: BaseModel, _key_types: KeyTypes) -> Parts:
    fields = type(item).model_fields
    stored = {name: part for name, part in item.__dict__.items() if not (name in fields and fields[name].exclude)}
    return stored | (item.model_extra or {})


def _open_dataclass(item: Any, _key_types: KeyTypes) -> Parts:
    return {name: getattr(item, name, None) for name in item.__dataclass_fields__}


def _open_struct(item: Any, _key_types: KeyTypes) -> Parts:
    return {name: getattr(item, name, None) for name in item.__struct_fields__}


def _check_integer(item: int, _key_types: KeyTypes) -> None:
    if not -_TOO_LARGE < item < _TOO_LARGE:
        raise Refused(f"an integer of more than {MAX_DIGITS} digits is not stored: pass it as text")


def _check_number(item: float | Decimal, _key_types: KeyTypes) -> None:
    if not isfinite(item):
        raise Refused(f"{str(item).lower()} is not a JSON number: pass None, or leave the value out")


def _refuse(item: object, _key_types: KeyTypes) -> Parts:
    raise Refused(why_not(item))


# The last line is what the library would quietly turn into something else.
_OPENERS: tuple[tuple[Any, Opener], ...] = (
    (str | bool, _leaf),
    (int, _check_integer),
    (float | Decimal, _check_number),
    (dict, _open_dict),
    (list | tuple | set | frozenset | deque, _open_places),
    (RootModel, _open_root),
    (BaseModel, _open_model),
    (bytes | bytearray | memoryview | complex | Iterator, _refuse),
)
