"""The types of what maps give: lists of items, as a whole or as a stream, with errors in the place of failed ones."""

from __future__ import annotations

import types
from collections import abc
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from catbird_django.definitions.type_names import UNIONS

STREAMS = {abc.Iterable, abc.Iterator}
ASYNC_STREAMS = {abc.AsyncIterable, abc.AsyncIterator}
ITERATORS = {abc.Iterator, abc.AsyncIterator}


@dataclass(frozen=True, slots=True)
class ItemError:
    """What stands in the place of an item that failed for good, where a map goes on without it (F14a)."""

    index: int
    """The place of the item in the list, from 0."""
    type: str
    """The class of the exception."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """An annotation that takes the items of a map one after the other, as they are read."""

    element: Any
    is_async: bool
    is_iterator: bool
    """Whether it is read once, and not anew by each loop over it."""


def stream_of(annotation: Any) -> Stream | None:
    """The stream that an annotation asks for, also as one that may be missing; None if it asks for a whole value."""
    if get_origin(annotation) in UNIONS:
        found = [stream_of(one) for one in get_args(annotation) if one is not types.NoneType]
        return found[0] if len(found) == 1 else None
    base = get_origin(annotation) or annotation
    if not isinstance(base, type) or base not in STREAMS | ASYNC_STREAMS:
        return None
    element = (get_args(annotation) or (Any,))[0]
    return Stream(element=element, is_async=base in ASYNC_STREAMS, is_iterator=base in ITERATORS)


def list_of(element: Any) -> Any:
    """The type of a list of these."""
    return types.GenericAlias(list, (element,))


def element_of(annotation: Any) -> Any:
    """The type of what is in a list, also in one that may be missing; Any where it says nothing of it."""
    if get_origin(annotation) in UNIONS:
        found = [element_of(one) for one in get_args(annotation) if one is not types.NoneType]
        return found[0] if len(found) == 1 else Any
    stated = [one for one in get_args(annotation) if one is not Ellipsis]
    return stated[0] if len(stated) == 1 else Any


def or_error(element: Any) -> Any:
    """The type of an item that may have failed."""
    return Union[element, ItemError]  # noqa: UP007 - `|` refuses some annotations


def without_error(element: Any) -> Any:
    """The type of an item that has not failed."""
    if not allows_errors(element) or element is ItemError:
        return element
    return Union[tuple(one for one in get_args(element) if one is not ItemError)]  # noqa: UP007 - of many


def allows_errors(element: Any) -> bool:
    """Whether the type of an item says that it may have failed."""
    return element is ItemError or (get_origin(element) in UNIONS and ItemError in get_args(element))
