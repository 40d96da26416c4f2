"""Guesses how wide a text will be. Nobody knows the reader's font here, so it guesses rather too wide."""

from __future__ import annotations

import unicodedata

# In widths of the font's size, as wide as a font in common use has them.
WIDTHS = {
    **dict.fromkeys("ijlI.,:;'|!", 0.32),
    **dict.fromkeys('frt()[]{}-/\\" ', 0.41),
    **dict.fromkeys("csvxyzk_", 0.58),
    **dict.fromkeys("mMW@%", 0.99),
    "w": 0.82,
}
FULL = 1.05  # Chinese, Japanese, Korean, emoji
BOLD = 1.1
ELLIPSIS = "…"


def width_of(text: str, font_size: float, *, is_bold: bool = False) -> float:
    """How many pixels the text takes up, at most."""
    return sum(map(_width_of_character, text)) * font_size * (BOLD if is_bold else 1.0)


def shortened(text: str, room: float, font_size: float, *, is_bold: bool = False) -> str:
    """The text in one line, its end replaced by dots if it does not fit into so many pixels."""
    line = " ".join(text.split())
    if width_of(line, font_size, is_bold=is_bold) <= room:
        return line
    while line and width_of(line + ELLIPSIS, font_size, is_bold=is_bold) > room:
        line = line[:-1]
    return line.rstrip() + ELLIPSIS


def _width_of_character(character: str) -> float:
    if character in WIDTHS:
        return WIDTHS[character]
    if unicodedata.combining(character) or unicodedata.category(character) == "Cf":
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return FULL
    return 0.72 if character.isupper() else 0.64
