"""The rules of pages by key, without a database."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from catbird_django.monitoring.paging import BadPositionError, Page, Position, page_of

NEWEST = Position()


@dataclass(frozen=True)
class Row:
    pk: int


def page(found: list[int], position: Position, *, edge: int | None = None, is_last: bool = False) -> Page:
    return page_of([Row(pk) for pk in found], position, size=2, edge=edge, is_last=is_last)


def keys(of: Page) -> list[int]:
    return [row.pk for row in of.rows]


def test_the_newest_page_has_older_ones_only() -> None:
    first = page([9, 8, 7], NEWEST)

    assert keys(first) == [9, 8]
    assert (first.newer, first.older) == (None, Position(older_than=8))


def test_an_older_page_leads_back_to_where_one_came_from() -> None:
    second = page([7, 6, 5], Position(older_than=8))

    assert keys(second) == [7, 6]
    assert (second.newer, second.older) == (Position(newer_than=7), Position(older_than=6))


def test_the_oldest_page_has_newer_ones_only() -> None:
    last = page([1], Position(older_than=2), is_last=True)

    assert (last.newer, last.older) == (Position(newer_than=1), None)


def test_a_walk_to_newer_rows_still_shows_the_newest_first() -> None:
    back = page([6, 7, 8], Position(newer_than=5))

    assert keys(back) == [7, 6]
    assert (back.newer, back.older) == (Position(newer_than=7), Position(older_than=6))


def test_a_page_whose_rows_are_gone_still_leads_back() -> None:
    assert page([], Position(older_than=8), is_last=True).newer == Position(newer_than=7)
    assert page([], Position(newer_than=8), is_last=True).older == Position(older_than=9)


def test_a_page_that_stopped_at_its_reach_goes_on_from_there() -> None:
    stopped = page([9], NEWEST, edge=5)

    assert keys(stopped) == [9]
    assert (stopped.stopped_at, stopped.older) == (5, Position(older_than=5))


def test_a_full_page_within_reach_says_nothing_of_it() -> None:
    full = page([9, 8, 7], NEWEST, edge=5)

    assert (full.stopped_at, full.older) == (None, Position(older_than=8))


def test_a_position_is_read_from_an_address_and_written_to_one() -> None:
    position = Position.from_parameters({"older_than": "17", "status": "failed"})

    assert position == Position(older_than=17)
    assert position.parameters() == {"older_than": 17, "newer_than": None}


@pytest.mark.parametrize(
    "parameters",
    [{"older_than": "x"}, {"newer_than": ""}, {"older_than": "1", "newer_than": "2"}, {"older_than": str(2**63)}],
)
def test_an_address_that_names_no_position_is_refused(parameters: dict[str, str]) -> None:
    with pytest.raises(BadPositionError):
        Position.from_parameters(parameters)
