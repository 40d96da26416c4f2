"""Cuts the text of a condition into words, fields, values and parentheses."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NoReturn

from catbird_django.definitions.names import CONDITION_WORDS
from catbird_django.errors import DefinitionError

MAX_BYTES = 500
MAX_TOKENS = 50

LITERALS = frozenset({"true", "false", "null"})
SPACE = re.compile(r"\s*")
ROOT = re.compile(r"[^\W\d]\w*")
STEP = re.compile(r'\.(?P<name>[^\W\d]\w*)|\[(?P<place>\d{1,9})\]|\[(?P<key>"(?:[^"\\]|\\.)*")\]')
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
SHOWN = 20  # characters of the text that an error quotes


class Kind(Enum):
    """What a token is."""

    WORD = auto()
    FIELD = auto()
    VALUE = auto()
    OPEN = auto()
    CLOSE = auto()
    END = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A piece of a condition, and where it stands."""

    kind: Kind
    position: int
    text: str
    value: Any = None
    """The path of a field, as ["input", "lines", 0]; the value of a value."""


def cut(text: str) -> list[Token]:
    """Cut a condition into tokens, END being the last; raise DefinitionError, with the place, if it cannot be."""
    _refuse_size(text)
    tokens: list[Token] = []
    for token in _tokens(text):
        tokens.append(token)
        if len(tokens) > MAX_TOKENS + 1:
            refuse(text, token.position, f"it has more than {MAX_TOKENS} words, fields and values")
    return tokens


def refuse(text: str, position: int, why: str) -> NoReturn:
    """Raise DefinitionError, quoting what stands at the position."""
    rest = text[position : position + SHOWN]
    place = f"at character {position + 1}, {rest!r}" if rest.strip() else "at its end"
    raise DefinitionError(f"condition {text[: 4 * SHOWN]!r}: {why} ({place})")


def _refuse_size(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise DefinitionError("a condition must be text that can be encoded as UTF-8") from None
    if size > MAX_BYTES:
        raise DefinitionError(
            f"a condition has at most {MAX_BYTES} bytes, not {size}: compute a field of the input instead"
        )


def _tokens(text: str) -> Iterator[Token]:
    position = _skip_space(text, 0)
    while position < len(text):
        token, end = _token_at(text, position)
        yield token
        position = _skip_space(text, end)
    yield Token(kind=Kind.END, position=len(text), text="")


def _skip_space(text: str, position: int) -> int:
    match = SPACE.match(text, position)
    return match.end() if match else position


def _token_at(text: str, position: int) -> tuple[Token, int]:
    if text[position] in "()":
        kind = Kind.OPEN if text[position] == "(" else Kind.CLOSE
        return Token(kind=kind, position=position, text=text[position]), position + 1
    word = ROOT.match(text, position)
    if word is None or word[0] in LITERALS:
        return _value_at(text, position)
    if word[0] in CONDITION_WORDS:
        return Token(kind=Kind.WORD, position=position, text=word[0]), word.end()
    return _field_at(text, word)


def _field_at(text: str, root: re.Match[str]) -> tuple[Token, int]:
    path: list[str | int] = [root[0]]
    end = root.end()
    while step := STEP.match(text, end):
        if step["key"] is not None:
            path.append(_checked(json_at(text, end + 1)[0], text, end + 1))
        else:
            path.append(step["name"] if step["place"] is None else int(step["place"]))
        end = step.end()
    if text[end : end + 1] in {".", "["}:
        refuse(text, end, 'a path goes on with .name, [0] or ["a key"]')
    return Token(kind=Kind.FIELD, position=root.start(), text=text[root.start() : end], value=path), end


def _value_at(text: str, position: int) -> tuple[Token, int]:
    value, end = json_at(text, position)
    if end < len(text) and (text[end].isalnum() or text[end] in '_.["{'):
        refuse(text, end, "a value must be followed by a space or a parenthesis")
    return Token(
        kind=Kind.VALUE, position=position, text=text[position:end], value=_checked(value, text, position)
    ), end


def json_at(text: str, position: int) -> tuple[Any, int]:
    """Read one JSON value; return it and where it ends."""
    try:
        return _DECODER.raw_decode(text, position)
    except (ValueError, RecursionError):
        refuse(text, position, "neither a field, a word of the grammar nor a JSON value")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)


def _checked(value: Any, text: str, position: int) -> Any:
    """The value, if PostgreSQL can store its strings."""
    if any(UNSTORABLE.search(string) for string in _strings_in(value)):
        refuse(text, position, "a string holds a NUL or half of a surrogate pair, which PostgreSQL cannot store")
    return value


def _strings_in(value: Any) -> Iterator[str]:
    left = [value]
    while left:
        match left.pop():
            case str() as string:
                yield string
            case list() as items:
                left += items
            case dict() as members:
                left += [*members.keys(), *members.values()]
