"""Opens a Python value as the encoder will: what is inside it, and under which names."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from operator import attrgetter
from typing import Any, TypeAlias
from uuid import UUID

from pydantic import BaseModel, RootModel

from catbird_django.codec.refusals import RefusalError, why_not

# Whole numbers of any size fit jsonb, but Python itself refuses to write or read more than 4300 digits.
MAX_DIGITS = 1000
_TOO_LARGE = 10**MAX_DIGITS

Parts: TypeAlias = Collection[object] | None
KeyTypes: TypeAlias = tuple[type, ...]
Opener: TypeAlias = Callable[[Any, KeyTypes], Parts]

STRING_KEYS: KeyTypes = (str,)
TYPED_KEYS: KeyTypes = (str, int, float, Decimal, date, time, timedelta, UUID, Enum)
ANY_KEYS: KeyTypes = (object,)

# Filled in as classes are met: a look-up here is what the check of a value mostly consists of.
_openers: dict[type, Opener] = {}


def contents(item: object, key_types: KeyTypes) -> Parts:
    """Return what is inside, or None for a leaf; raise RefusalError when the encoder would change or drop the item.

    A class we do not know is a leaf: whether it has a JSON form is the library's business.
    """
    kind: type[Any] = type(item)
    opener = _openers.get(kind)
    if opener is None:
        opener = _openers[kind] = _choose_opener(kind)
    return opener(item, key_types)


def names_inside(item: object) -> Iterable[object]:
    """Return the names of the parts that `contents` returned: keys, fields, or places."""
    if isinstance(item, Enum):
        return names_inside(item.value)
    if isinstance(item, dict):
        return item
    if isinstance(item, RootModel):
        return names_inside(item.root)
    if isinstance(item, BaseModel):
        return _stored_fields(item)
    return _field_names(type(item)) if _has_fields(type(item)) else range(len(item))  # type: ignore[arg-type]  # it has parts, so a length


def _choose_opener(kind: type) -> Opener:
    if issubclass(kind, Enum):
        return _open_enum
    if hasattr(kind, "get_secret_value"):
        return _refuse
    if _has_fields(kind):
        return _fields_opener(_field_names(kind))
    return next((opener for base, opener in _OPENERS if issubclass(kind, base)), _leaf)


def _has_fields(kind: type) -> bool:
    return hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__struct_fields__")


def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(kind.__dataclass_fields__) if hasattr(kind, "__dataclass_fields__") else kind.__struct_fields__


def _fields_opener(names: tuple[str, ...]) -> Opener:
    if not names:
        return lambda _item, _key_types: ()
    # The first field twice, because attrgetter of a single name would return no tuple.
    values = attrgetter(names[0], *names)

    def open_fields(item: object, _key_types: KeyTypes) -> Parts:
        try:
            return values(item)[1:]
        except AttributeError as error:
            raise RefusalError(f"a field is not set: {error}") from None

    return open_fields


def _leaf(_item: object, _key_types: KeyTypes) -> None:
    return None


def _open_dict(item: dict[Any, object], key_types: KeyTypes) -> Parts:
    for key in item:
        if type(key) is not str and not isinstance(key, key_types):
            raise RefusalError(
                f"a key is {type(key).__name__}, and JSON keys are strings: "
                f"pass str(key), or declare the type of the keys, as in dict[int, …]"
            )
    return item.values()


def _open_places(item: Collection[object], _key_types: KeyTypes) -> Parts:
    return item


def _open_enum(item: Enum, key_types: KeyTypes) -> Parts:
    return contents(item.value, key_types)


def _open_root(item: RootModel[Any], key_types: KeyTypes) -> Parts:
    return contents(item.root, key_types)


def _open_model(item: BaseModel, _key_types: KeyTypes) -> Parts:
    return _stored_fields(item).values()


def _stored_fields(item: BaseModel) -> dict[str, object]:
    fields = type(item).model_fields
    stored = {name: item.__dict__[name] for name in fields if name in item.__dict__ and not fields[name].exclude}
    return stored | (item.model_extra or {})


def _check_integer(item: int, _key_types: KeyTypes) -> None:
    if not -_TOO_LARGE < item < _TOO_LARGE:
        raise RefusalError(f"an integer of more than {MAX_DIGITS} digits is not stored: pass it as text")


def _check_float(item: float, _key_types: KeyTypes) -> None:
    if not isfinite(item):
        raise RefusalError(f"{item} is not a JSON number (nor is 1e309 or more a float): pass None, or leave it out")


def _check_decimal(item: Decimal, _key_types: KeyTypes) -> None:
    if not item.is_finite():
        raise RefusalError(f"Decimal {item} is not a number: pass None, or leave it out")


def _refuse(item: object, _key_types: KeyTypes) -> Parts:
    raise RefusalError(why_not(item))


# The last line is what the library would quietly turn into something else.
_OPENERS: tuple[tuple[Any, Opener], ...] = (
    (str | bool, _leaf),
    (int, _check_integer),
    (float, _check_float),
    (Decimal, _check_decimal),
    (dict, _open_dict),
    (list | tuple | set | frozenset | deque, _open_places),
    (RootModel, _open_root),
    (BaseModel, _open_model),
    (bytes | bytearray | memoryview | complex | Iterator, _refuse),
)
