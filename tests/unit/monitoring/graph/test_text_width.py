"""How wide texts are thought to be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catbird_django.monitoring.graph.text_width import ELLIPSIS, shortened, width_of


@given(text=st.text(), room=st.integers(20, 300))
def test_a_shortened_text_fits_on_one_line(text: str, room: int) -> None:
    short = shortened(text, room, 11)

    assert width_of(short, 11) <= room
    assert short.splitlines() in ([], [short])


def test_what_fits_is_not_shortened() -> None:
    assert shortened("validate", 100, 11) == "validate"


def test_dots_stand_for_what_is_left_out() -> None:
    short = shortened("notify_everybody_who_asked_for_it", 100, 11)

    assert short.endswith(ELLIPSIS)
    assert "notify_everybody_who_asked_for_it".startswith(short[:-1])


def test_characters_have_their_own_widths() -> None:
    assert width_of("iiii", 10) < width_of("nnnn", 10) < width_of("mmmm", 10) < width_of("漢漢漢漢", 10)
    assert width_of("e\N{COMBINING ACUTE ACCENT}", 10) == width_of("e", 10)
    assert width_of("name", 10) < width_of("name", 10, is_bold=True)
