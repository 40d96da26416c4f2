"""Whether what one step returns can be what another takes (F2).

Values travel as JSON: they are written by the producer's type and read by the consumer's. A pair of types is refused
only when that cannot work, or when both are classes that have nothing to do with each other. Where it depends on the
value, the pair fits, and the worker checks the value.
"""

from __future__ import annotations

import collections
import types
from collections import abc
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum, auto
from typing import Annotated, Any, ForwardRef, Literal, Never, NoReturn, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

from catbird_django.definitions.type_names import UNIONS

# bool before int and datetime before date: a class counts as the first it is derived from.
SCALARS = (bool, int, float, str, Decimal, datetime, date, time, timedelta, UUID)
WRITTEN_AS_TEXT = (Decimal, datetime, date, time, timedelta, UUID)
# A bool is an int to Python, but `true` is not read as a number; nor is the text of a datetime read as a date.
READ_AS = {
    *((text, str) for text in WRITTEN_AS_TEXT),
    *((str, text) for text in WRITTEN_AS_TEXT),
    *{(int, float), (int, Decimal), (float, Decimal), (date, datetime)},
}
ARRAYS = (list, tuple, set, frozenset, collections.deque)
ABSTRACT_ARRAYS = {abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable, abc.Set, abc.MutableSet}
ABSTRACT_MAPPINGS = {abc.Mapping, abc.MutableMapping}
RECORD_MARKS = ("__dataclass_fields__", "__pydantic_fields__", "__struct_fields__")

Seen = set[tuple[str, str]]


class Kind(StrEnum):
    """What a type is, as far as fitting is concerned."""

    NULL = auto()
    SCALAR = auto()
    ENUM = auto()
    LITERAL = auto()
    RECORD = auto()
    TYPED_DICT = auto()
    NAMED_TUPLE = auto()
    MAPPING = auto()
    ARRAY = auto()
    UNKNOWN = auto()


OBJECTS = {Kind.RECORD, Kind.TYPED_DICT, Kind.MAPPING}
LISTS = {Kind.NAMED_TUPLE, Kind.ARRAY}
CHOICES = {Kind.ENUM, Kind.LITERAL}


def fits(given: Any, wanted: Any) -> bool:
    """Say whether values of the first type can be read as the second; they can where it cannot be told."""
    return _fits(given, wanted, set())


def narrowest(annotations: Sequence[Any]) -> Any:
    """The type whose values can be read as all of the others; the first type if there is none such."""
    fitting = [one for one in annotations if all(fits(one, other) for other in annotations)]
    # A dict may be read as a record, and text as a date, but only perhaps: what says more about its values is narrower.
    return min(fitting or annotations[:1], key=_is_loose)


def accepts_none(annotation: Any) -> bool:
    """Whether None is among the values of a type that says so; Any does not."""
    annotation = _plain(annotation)
    return _kind(annotation) is Kind.NULL or (
        get_origin(annotation) in UNIONS and any(accepts_none(one) for one in get_args(annotation))
    )


def is_unstated(annotation: Any) -> bool:
    """Whether the type says nothing about its values."""
    annotation = _plain(annotation)
    return annotation is Any or annotation is object or isinstance(annotation, TypeVar | str | ForwardRef)


def _fits(given: Any, wanted: Any, seen: Seen) -> bool:
    given, wanted = _plain(given), _plain(wanted)
    # A pair that is met again, inside itself, is decided by the rest: types may be recursive.
    pair = (repr(given), repr(wanted))
    if pair in seen or given == wanted or given in (Never, NoReturn) or is_unstated(given) or is_unstated(wanted):
        return True
    seen.add(pair)
    if len(choices := _alternatives(given)) > 1:
        return all(_fits(one, wanted, seen) for one in choices)
    if get_origin(wanted) in UNIONS:
        return any(_fits(given, one, set(seen)) for one in get_args(wanted))
    return _fits_single(given, wanted, seen)


def _alternatives(annotation: Any) -> list[Any]:
    """The types of a union, and a Literal for each value of one."""
    if get_origin(annotation) is Literal:
        return [Literal[value] for value in get_args(annotation)]
    return list(get_args(annotation)) if get_origin(annotation) in UNIONS else [annotation]


def _plain(annotation: Any) -> Any:
    """The type without what only decorates it: Annotated, NewType, a named alias."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(alias := get_origin(annotation) or annotation).__name__ == "TypeAliasType":
            annotation = _value_of(alias)
        else:
            return annotation


def _value_of(alias: Any) -> Any:
    """What `type X = …` stands for: evaluated only now, and it may name what does not exist."""
    try:
        return alias.__value__
    except NameError:
        return Any


def _fits_single(given: Any, wanted: Any, seen: Seen) -> bool:
    kinds = given_kind, wanted_kind = _kind(given), _kind(wanted)
    if Kind.UNKNOWN in kinds:
        return True
    if set(kinds) & CHOICES:
        return _fits_choice(given, wanted, seen)
    if set(kinds) <= OBJECTS:
        return _fits_object(given, wanted, seen)
    if set(kinds) <= LISTS:
        return _fits_list(given, wanted, seen)
    if given_kind is wanted_kind is Kind.SCALAR:
        return _scalar(given) is _scalar(wanted) or (_scalar(given), _scalar(wanted)) in READ_AS
    return given_kind is wanted_kind


def _kind(annotation: Any) -> Kind:
    base = get_origin(annotation) or annotation
    if base is None or base is types.NoneType:
        return Kind.NULL
    if base is Literal:
        return Kind.LITERAL
    if hasattr(base, "__required_keys__"):
        return Kind.TYPED_DICT
    return _kind_of_class(base) if isinstance(base, type) else Kind.UNKNOWN


def _kind_of_class(base: type) -> Kind:
    if issubclass(base, Enum):
        return Kind.ENUM
    if any(hasattr(base, mark) for mark in RECORD_MARKS):
        return Kind.RECORD if _is_written_as_object(base) else Kind.UNKNOWN
    if issubclass(base, SCALARS):
        return Kind.SCALAR
    if issubclass(base, dict) or base in ABSTRACT_MAPPINGS:
        return Kind.MAPPING
    if issubclass(base, tuple) and hasattr(base, "_fields"):
        return Kind.NAMED_TUPLE
    return Kind.ARRAY if issubclass(base, ARRAYS) or base in ABSTRACT_ARRAYS else Kind.UNKNOWN


def _is_written_as_object(record: Any) -> bool:
    """A pydantic model may consist of one other value, and a msgspec Struct may be written as a list."""
    is_root_model = getattr(record, "__pydantic_root_model__", False)
    return not is_root_model and not getattr(getattr(record, "__struct_config__", None), "array_like", False)


def _is_loose(annotation: Any) -> bool:
    annotation = _plain(annotation)
    return _kind(annotation) in {Kind.MAPPING, Kind.ARRAY, Kind.UNKNOWN} or annotation is str


def _scalar(annotation: Any) -> type:
    return next(scalar for scalar in SCALARS if issubclass(annotation, scalar))


def _fits_choice(given: Any, wanted: Any, seen: Seen) -> bool:
    if _kind(given) is _kind(wanted) is Kind.ENUM:
        return issubclass(given, wanted)
    if _kind(given) is _kind(wanted) is Kind.LITERAL:
        return set(get_args(given)) <= set(get_args(wanted))
    if _kind(given) in CHOICES:
        return all(_fits(kind, wanted, seen) for kind in _kinds_of_values(given))
    # Whether the value is one of those wanted, only the value can tell.
    return any(_fits(given, kind, set(seen)) for kind in _kinds_of_values(wanted))


def _kinds_of_values(choice: Any) -> list[type]:
    values = get_args(choice) if _kind(choice) is Kind.LITERAL else [member.value for member in choice]
    return [type(value.value if isinstance(value, Enum) else value) for value in values]


def _fits_object(given: Any, wanted: Any, seen: Seen) -> bool:
    kinds = _kind(given), _kind(wanted)
    if kinds == (Kind.MAPPING, Kind.MAPPING):
        return _fits_mapping(given, wanted, seen)
    if kinds == (Kind.TYPED_DICT, Kind.TYPED_DICT):
        return _fits_typed_dict(given, wanted, seen)
    return _fits_class(given, wanted, seen) if kinds == (Kind.RECORD, Kind.RECORD) else True


def _fits_mapping(given: Any, wanted: Any, seen: Seen) -> bool:
    (given_key, given_value), (key, value) = _arguments(given, 2), _arguments(wanted, 2)
    # Every key is text in JSON, so whatever it was can be read as str.
    return (_plain(key) is str or _fits(given_key, key, seen)) and _fits(given_value, value, seen)


def _fits_typed_dict(given: Any, wanted: Any, seen: Seen) -> bool:
    """Structurally, as for every type checker: what is required must be there, and fit."""
    given, wanted = get_origin(given) or given, get_origin(wanted) or wanted
    try:
        offered, fields = get_type_hints(given), get_type_hints(wanted)
    except NameError:
        return True
    return wanted.__required_keys__ <= offered.keys() and all(
        _fits(offered[name], field, seen) for name, field in fields.items() if name in offered
    )


def _fits_class(given: Any, wanted: Any, seen: Seen) -> bool:
    base, wanted_base = get_origin(given) or given, get_origin(wanted) or wanted
    if base is not wanted_base:
        return issubclass(base, wanted_base)
    pairs = zip(get_args(given), get_args(wanted), strict=False)
    return all(_fits(one, other, seen) for one, other in pairs)


def _fits_list(given: Any, wanted: Any, seen: Seen) -> bool:
    kinds = _kind(given), _kind(wanted)
    if kinds != (Kind.ARRAY, Kind.ARRAY):
        return kinds != (Kind.NAMED_TUPLE, Kind.NAMED_TUPLE) or _fits_class(given, wanted, seen)
    offered, elements = _elements(given), _elements(wanted)
    if _is_fixed(given) and _is_fixed(wanted):
        return len(offered) == len(elements) and all(
            _fits(one, other, seen) for one, other in zip(offered, elements, strict=True)
        )
    return all(_fits(one, other, seen) for one in offered for other in elements)


def _is_fixed(annotation: Any) -> bool:
    """Whether it is a tuple with a type for each place."""
    return get_origin(annotation) is tuple and Ellipsis not in get_args(annotation)


def _elements(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is tuple:
        return tuple(one for one in get_args(annotation) if one is not Ellipsis)
    return _arguments(annotation, 1)


def _arguments(annotation: Any, count: int) -> tuple[Any, ...]:
    given = get_args(annotation)
    return given if len(given) == count else (Any,) * count
