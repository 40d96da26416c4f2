"""The outputs of maps, as handlers take them: never stored as one value, but read item by item (F14a).

Whole lists are read before the handler is called, streams while it runs, on whatever thread reads them.
"""

from __future__ import annotations

import json
from collections import abc
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, get_args, get_origin

from asgiref.sync import sync_to_async

from catbird_django.codec import codec_for
from catbird_django.definitions.item_types import ItemError, without_error
from catbird_django.definitions.type_names import UNIONS
from catbird_django.engine.call import DATABASE_TROUBLE
from catbird_django.engine.items import ItemOutput

FIRST_PAGE = 20  # items; how big they are is not known before
LARGEST_PAGE = 500
MOST_CHARACTERS = 4 * 1024 * 1024
"""What a page should have at most, if its items are no bigger than those before them."""

Decode = Callable[[ItemOutput], Any]


class Unread(Exception):
    """The database did not give the outputs of a map. That is not the fault of whoever was to take them."""


class ReadItems(Protocol):
    """Reads so many outputs of a map's step run, in order, after a place."""

    def __call__(self, step_run_id: int, *, after: int, limit: int) -> Sequence[ItemOutput]: ...


class Pages:
    """The outputs of one map, some at a time: few of the big ones, many of the small."""

    def __init__(self, read: ReadItems, step_run_id: int) -> None:
        self._read = read
        self._step_run_id = step_run_id
        self._after = -1
        self._limit = FIRST_PAGE

    def next(self) -> Sequence[ItemOutput]:
        """Read the next page; it is empty after the last. Raise Unread if the database does not answer."""
        try:
            page = self._read(self._step_run_id, after=self._after, limit=self._limit)
        except DATABASE_TROUBLE as error:
            raise Unread(str(error)) from error
        if page:
            self._after = page[-1].place
            largest = max(len(output.value) for output in page)
            self._limit = max(1, min(5 * self._limit, LARGEST_PAGE, MOST_CHARACTERS // max(1, largest)))
        return page

    def __iter__(self) -> Iterator[ItemOutput]:
        while page := self.next():
            yield from page


class ItemStream:
    """Gives the outputs of a map as a handler goes over them; each loop begins anew."""

    def __init__(self, open_outputs: Callable[[], Iterable[ItemOutput]], decode: Decode) -> None:
        self._open = open_outputs
        self._decode = decode

    def __iter__(self) -> Iterator[Any]:
        return map(self._decode, self._open())


class AsyncItemStream:
    """The same for async handlers."""

    def __init__(self, open_pages: Callable[[], Pages], decode: Decode) -> None:
        self._open_pages = open_pages
        self._decode = decode

    async def __aiter__(self) -> AsyncIterator[Any]:
        next_page = sync_to_async(self._open_pages().next)
        while page := await next_page():
            for output in page:
                yield self._decode(output)


def decode_items(element: Any, *, name: str) -> Decode:
    """How outputs of a map become values of this type; in the place of a failed one is an `ItemError`.

    What is made raises PayloadError, naming the item, for one that is not of the type.
    """
    decode = codec_for(without_error(element)).decode

    def value_of(output: ItemOutput) -> Any:
        if output.is_error:
            return error_from(output.value)
        return decode(output.value, name=f"{name}[{output.place}]")

    return value_of


def error_from(text: str) -> ItemError:
    """The error that is stored in the place of an item."""
    return ItemError(**json.loads(text))


def whole_list(annotation: Any, *, name: str) -> Callable[[Iterable[ItemOutput]], Any]:
    """How all outputs of a map become one value of this type."""
    annotation = _without_none(annotation)
    made_by = _MADE_BY.get(get_origin(annotation) or annotation)
    elements = [one for one in get_args(annotation) if one is not Ellipsis]
    is_fixed = made_by is tuple and bool(elements) and Ellipsis not in get_args(annotation)
    if made_by is None or is_fixed or len(elements) > 1:
        return _as_one_text(annotation, name)
    decode = decode_items(elements[0] if elements else Any, name=name)

    def value_of(outputs: Iterable[ItemOutput]) -> Any:
        return made_by(map(decode, outputs))

    return value_of


def _without_none(annotation: Any) -> Any:
    """The one type beside None that may be meant; the annotation itself if there are several."""
    if get_origin(annotation) not in UNIONS:
        return annotation
    meant = [one for one in get_args(annotation) if one is not type(None)]
    return meant[0] if len(meant) == 1 else annotation


_MADE_BY: dict[Any, Callable[[Iterable[Any]], Any]] = {
    Any: list,
    object: list,
    list: list,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Collection: list,
    tuple: tuple,
    set: set,
    abc.Set: set,
    abc.MutableSet: set,
    frozenset: frozenset,
}


def _as_one_text(annotation: Any, name: str) -> Callable[[Iterable[ItemOutput]], Any]:
    """For types that only their codec knows how to make of a list."""
    decode = codec_for(annotation).decode

    def value_of(outputs: Iterable[ItemOutput]) -> Any:
        return decode(f"[{','.join(output.value for output in outputs)}]", name=name)

    return value_of
