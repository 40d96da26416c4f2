"""Lays out JSON text for reading, without parsing it: numbers keep their digits, and depth costs no stack."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

INDENT = "  "

# A text that was cut may end inside a string.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)
_SPACED = {":": ": "}
_OPENING = frozenset("[{")
_CLOSING = frozenset("]}")


def laid_out(text: str, *, limit: int) -> str:
    """Indent JSON text, one member or element a line; stop with an ellipsis after about `limit` characters."""
    pieces: list[str] = []
    room = limit
    for piece in _pieces(text):
        room -= len(piece)
        if room < 0:
            return "".join([*pieces, piece[:room], "…"])
        pieces.append(piece)
    return "".join(pieces)


def _pieces(text: str) -> Iterator[str]:
    depth = 0
    previous = ""
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in _CLOSING:
            depth -= 1
        # Everything inside brackets has a line of its own, unless there is nothing inside.
        if previous == "," or (previous in _OPENING) != (token in _CLOSING):
            yield "\n" + INDENT * depth
        yield _SPACED.get(token, token)
        if token in _OPENING:
            depth += 1
        previous = token


def condition_in_words(condition: Any) -> str:
    """The condition of a task as it was written, if that was stored with it; else its JSON."""
    if condition is None:
        return ""
    written = (
        condition if isinstance(condition, str) else condition.get("text") if isinstance(condition, dict) else None
    )
    return written if isinstance(written, str) else json.dumps(condition, ensure_ascii=False)
