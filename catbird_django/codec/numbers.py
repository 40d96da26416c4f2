"""Writes large floats so that they survive jsonb, which would hand 4.5e16 back as a whole number."""

from __future__ import annotations

import re
from decimal import Decimal

_MAYBE_LARGE = re.compile(r"[0-9]e\+?[0-9]")
_STRING_OR_LARGE = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9.]+e\+?[0-9]+')


def spell_out(text: str) -> str:
    """Replace positive exponents by digits and `.0`: the column keeps the `.0`, and with it the float."""
    return _STRING_OR_LARGE.sub(_spelled, text) if _MAYBE_LARGE.search(text) else text


def _spelled(token: re.Match[str]) -> str:
    found = token[0]
    return found if found.startswith('"') else f"{Decimal(found):f}.0"
