"""What may be stored: checked on the Python value and on its text, so that jsonb never has to refuse it."""

from __future__ import annotations

import re
import sys
from datetime import date, datetime
from uuid import UUID

from pydantic_core import PydanticSerializationError, from_json, to_json

from catbird_django.codec.contents import ANY_KEYS, MAX_DIGITS, STRING_KEYS, KeyTypes, Parts, contents, names_inside
from catbird_django.codec.numbers import spell_out
from catbird_django.codec.paths import join
from catbird_django.codec.refusals import RefusalError, why_not
from catbird_django.errors import PayloadError

__all__ = ["MAX_DEPTH", "MAX_DIGITS", "check_finite", "check_text", "check_value", "explain"]

MAX_DEPTH = 100
# A digit and a comma.
SMALLEST_PART = 2

# Leaves that need no further look, and are most of any value.
_PLAIN = frozenset({bool, type(None), date, datetime, UUID})
# What follows keeps the hexadecimal digests apart, which are full of "3e123".
_EXPONENT = re.compile(r"[0-9][eE]\+?[0-9]{3,}(?:[\s,}\]]|$)")
_LONG_NUMBER = re.compile(r"[0-9]{200}")


def check_value(value: object, *, name: str, max_bytes: int, key_types: KeyTypes = STRING_KEYS) -> None:
    """Refuse a value with a part that the encoder would change or could not write, naming its path.

    Level by level and without recursion, so neither depth nor a circle can exhaust the stack.
    """
    try:
        _walk(value, name, max_bytes, key_types)
    except RefusalError as refusal:
        raise explain(value, name=name, key_types=key_types) or PayloadError(str(refusal), path=name) from None


def check_text(raw: bytes, *, name: str, max_bytes: int, has_floats: bool) -> str:
    """Return the text of an encoded value as it is stored, unless it is too long or holds a NUL character."""
    _check_size(len(raw), name, max_bytes)
    text = raw.decode()
    # Only a suspicion: a backslash written before "u0000" looks the same.
    if "\\u0000" in text and (problem := explain(from_json(text), name=name)):
        raise problem
    return _with_floats_spelled_out(text, len(raw), name, max_bytes) if has_floats else text


def check_finite(value: object, text: str, *, name: str) -> None:
    """Refuse a decoded value with a number that its text could express and a float cannot, such as 1e400."""
    if "NaN" in text or "Infinity" in text or _EXPONENT.search(text) or _LONG_NUMBER.search(text):
        check_value(value, name=name, max_bytes=sys.maxsize, key_types=ANY_KEYS)


def explain(value: object, *, name: str, key_types: KeyTypes = STRING_KEYS) -> PayloadError | None:
    """Find the first part that cannot be stored and name its path; slow, and only used once something is wrong."""
    level = [(name, value)]
    for _ in range(MAX_DEPTH + 1):
        deeper: list[tuple[str, object]] = []
        for path, item in level:
            try:
                parts = _look_closely(item, key_types)
            except RefusalError as refusal:
                return PayloadError(str(refusal), path=path)
            if parts:
                deeper.extend((join(path, step), part) for step, part in zip(names_inside(item), parts, strict=True))
        level = deeper
    return None


def _walk(value: object, name: str, max_bytes: int, key_types: KeyTypes) -> None:
    level, room = [value], max_bytes
    for _ in range(MAX_DEPTH):
        deeper: list[object] = []
        for item in level:
            kind = type(item)
            if kind is str:
                room -= len(item)  # type: ignore[arg-type]  # narrowed by `kind`, which mypy does not follow
            elif kind not in _PLAIN and (parts := contents(item, key_types)):
                # A lower bound of the size: what is far too big is refused before it is written, and shared
                # references, which multiply with every level, come to an end.
                room -= SMALLEST_PART * len(parts)
                if room < 0:
                    break
                deeper.extend(parts)
        if room < 0:
            raise _too_big("more (or it contains itself)", name=name, max_bytes=max_bytes)
        if not deeper:
            return
        level = deeper
    if any(contents(item, key_types) is not None for item in level):
        raise PayloadError(f"nested deeper than {MAX_DEPTH} levels, or contains itself", path=name)


def _look_closely(item: object, key_types: KeyTypes) -> Parts:
    parts = contents(item, key_types)
    if isinstance(item, str):
        _check_characters(item, "the text")
    elif isinstance(item, dict):
        for key in item:
            _check_characters(str(key), "a key")
    elif parts is None:
        _check_serializable(item)
    return parts


def _check_characters(text: str, what: str) -> None:
    if "\0" in text:
        raise RefusalError(f"{what} holds a NUL character, which PostgreSQL cannot store: remove it")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise RefusalError(
            f"{what} holds half of a surrogate pair, which is not valid Unicode: decode it with errors='replace'"
        )


def _check_serializable(item: object) -> None:
    try:
        to_json(item)
    except PydanticSerializationError:
        raise RefusalError(why_not(item)) from None


def _with_floats_spelled_out(text: str, size: int, name: str, max_bytes: int) -> str:
    spelled = spell_out(text)
    if spelled is not text:
        _check_size(size + len(spelled) - len(text), name, max_bytes)
    return spelled


def _check_size(size: int, name: str, max_bytes: int) -> None:
    if size > max_bytes:
        raise _too_big(f"{size:,}", name=name, max_bytes=max_bytes)


def _too_big(size: str, *, name: str, max_bytes: int) -> PayloadError:
    return PayloadError(
        f"too big: at most {max_bytes:,} bytes of JSON are stored, and this takes {size}; "
        f"keep the data elsewhere and pass its key",
        path=name,
    )
