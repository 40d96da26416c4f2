"""Places as near to the wishes as can be, and as far apart as must be."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catbird_django.monitoring.graph.placing import closest_places

WISHES = st.lists(st.tuples(st.integers(-500, 500), st.sampled_from([0.4, 1.0, 60.0]), st.integers(1, 90)), min_size=1)


@given(wanted=WISHES)
def test_places_keep_the_order_and_the_distances(wanted: list[tuple[int, float, int]]) -> None:
    offsets = list(accumulate((distance for *_, distance in wanted[1:]), initial=0))

    places = closest_places([(wish, weight) for wish, weight, _ in wanted], offsets)

    for (one, other), (_, _, distance) in zip(pairwise(places), wanted[1:], strict=True):
        assert other - one >= distance - 1e-6


def test_wishes_that_do_not_collide_are_met() -> None:
    assert closest_places([(0, 1.0), (100, 1.0), (250, 1.0)], [0, 50, 100]) == [0, 100, 250]


def test_equal_wishes_share_the_trouble() -> None:
    assert closest_places([(100, 1.0), (100, 1.0)], [0, 50]) == [75, 125]


def test_who_insists_more_moves_less() -> None:
    one, other = closest_places([(100, 60.0), (100, 1.0)], [0, 50])

    assert other - one == pytest.approx(50)
    assert abs(one - 100) < 1
