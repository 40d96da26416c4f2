"""Pages of rows by key, newest first, walked in both directions.

A page begins at a key, not at a number of rows to skip: the thousandth page costs what the first does, nothing is
counted, and rows that are added meanwhile move no other row to another page.

A filter that no index answers would walk the whole table for the rows it does not find. So a page may be given a reach:
how many rows, matching or not, it looks at before it stops and offers to look further.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.db.models import Max, Min, Model, QuerySet

M = TypeVar("M", bound=Model)

OLDER_THAN = "older_than"
NEWER_THAN = "newer_than"

REACH = 100_000
"""How many rows a page looks at for those that match a filter without an index."""


class BadPositionError(ValueError):
    """The address of a page names no position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a page begins: next to a key that is not on it; at the newest row when neither is given."""

    older_than: int | None = None
    newer_than: int | None = None

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> Position:
        """Read a position from the parameters of an address; raise BadPositionError when they make none."""
        given = {name: parameters[name] for name in (OLDER_THAN, NEWER_THAN) if name in parameters}
        if len(given) > 1:
            raise BadPositionError(f"{OLDER_THAN} and {NEWER_THAN} exclude each other")
        try:
            return cls(**{name: _key(text) for name, text in given.items()})
        except ValueError as error:
            raise BadPositionError(str(error)) from error

    def parameters(self) -> dict[str, int | None]:
        """The parameters that name this position; None for one that the address must not have."""
        return {OLDER_THAN: self.older_than, NEWER_THAN: self.newer_than}


def _key(text: str) -> int:
    key = int(text)
    if not -(2**63) < key < 2**63 - 1:
        raise ValueError(f"{key} is no key")
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[M]):
    """Rows, newest first, and where the pages beside them begin; None where there are none."""

    rows: Sequence[M]
    newer: Position | None
    older: Position | None
    stopped_at: int | None = None
    """The last key looked at, when the reach ended before the page was full."""


def read_page(matching: QuerySet[M], position: Position, *, size: int, reach: int | None = None) -> Page[M]:
    """Read the page that begins at a position.

    Going to newer pages, a row whose transaction took its key early and committed late may already lie behind; it is
    there on the next look at that page.
    """
    edge = _edge(matching, position, reach) if reach else None
    # One more than fits says whether there is a further page.
    found = list(_walk(matching, position, edge)[: size + 1])
    is_last = len(found) <= size and (edge is None or not _has_rows(matching, _next_to(position, edge)))
    return page_of(found, position, size=size, edge=edge, is_last=is_last)


def page_of(found: Sequence[M], position: Position, *, size: int, edge: int | None, is_last: bool) -> Page[M]:
    """Make the page of the rows that a walk from a position found, at most one more than fits.

    `edge` is the last key that the walk looked at, if it was limited; `is_last` says that there is nothing further.
    """
    rows = found[:size]
    stopped_at = edge if len(found) <= size and not is_last else None
    further = None if is_last else _next_to(position, rows[-1].pk if stopped_at is None else stopped_at)
    back = _back(position, rows)
    if position.newer_than is None:
        return Page(rows=rows, newer=back, older=further, stopped_at=stopped_at)
    return Page(rows=rows[::-1], newer=further, older=back, stopped_at=stopped_at)


def _next_to(position: Position, key: int) -> Position:
    """The position beside a key, in the direction of the walk."""
    return Position(older_than=key) if position.newer_than is None else Position(newer_than=key)


def _back(position: Position, rows: Sequence[M]) -> Position | None:
    """Where the page begins from which somebody came here; rows are in the order of the walk."""
    if position.newer_than is not None:
        return Position(older_than=rows[0].pk if rows else position.newer_than + 1)
    if position.older_than is not None:
        return Position(newer_than=rows[0].pk if rows else position.older_than - 1)
    return None


def _walk(rows: QuerySet[M], position: Position, edge: int | None = None) -> QuerySet[M]:
    """The rows from a position on, in the order in which they are met, up to an edge."""
    if position.newer_than is not None:
        rows = rows.filter(pk__gt=position.newer_than).order_by("pk")
        return rows if edge is None else rows.filter(pk__lte=edge)
    if position.older_than is not None:
        rows = rows.filter(pk__lt=position.older_than)
    rows = rows.order_by("-pk")
    return rows if edge is None else rows.filter(pk__gte=edge)


def _edge(matching: QuerySet[M], position: Position, reach: int) -> int | None:
    """The key of the last row within reach; None when there is no row at all."""
    within = _walk(_unfiltered(matching), position).values("pk")[:reach]
    edge: int | None = within.aggregate(edge=(Min if position.newer_than is None else Max)("pk"))["edge"]
    return edge


def _has_rows(rows: QuerySet[M], position: Position) -> bool:
    """Is there any row from here on, matching or not?"""
    # Not exists(): without an order, the planner reads the table from its beginning until it meets such a row.
    return bool(_walk(_unfiltered(rows), position).values_list("pk")[:1])


def _unfiltered(rows: QuerySet[M]) -> QuerySet[M]:
    return QuerySet(rows.model, using=rows.db)
