"""Values of options, checked: durations, counts, choices. Each raises DefinitionError, naming the option."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from catbird_django.errors import DefinitionError

LONGEST = timedelta(days=3660)


def checked_duration(option: str, value: object) -> timedelta | None:
    """A duration given in seconds or as timedelta; None stays None."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LONGEST.total_seconds():
        value = timedelta(seconds=value)
    if not isinstance(value, timedelta) or not timedelta(0) < value <= LONGEST:
        raise DefinitionError(f"{option} must be more than 0 seconds, or such a timedelta, at most ten years")
    return value


def checked_count(option: str, value: object, *, least: int, most: int = 10_000) -> int | None:
    """A whole number; None stays None."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        longest = f"{most:_}".replace("_", " ")
        raise DefinitionError(f"{option} must be a whole number from {least} to {longest}, not {value!r}")
    return value


def checked_choice(option: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """One of these."""
    if value not in choices:
        raise DefinitionError(f"{option} must be {' or '.join(map(repr, choices))}, not {value!r}")
    return value


def checked_flag(option: str, value: object) -> bool:
    """True or False, and nothing that merely counts as such."""
    if not isinstance(value, bool):
        raise DefinitionError(f"{option} must be True or False, not {value!r}")
    return value


def checked_text(option: str, value: object) -> str:
    """A string, also an empty one."""
    if not isinstance(value, str):
        raise DefinitionError(f"{option} must be text, not {value!r}")
    return value


def checked_texts(option: str, value: object) -> tuple[str, ...]:
    """One string or several, none of them empty, none twice."""
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | dict):
        raise DefinitionError(f"{option} must be a list of names, not {value!r}")
    texts = tuple(texts)
    if not all(isinstance(text, str) and text for text in texts):
        raise DefinitionError(f"{option} must be a list of names, not {value!r}")
    if len(set(texts)) < len(texts):
        raise DefinitionError(f"{option} names one twice: {', '.join(texts)}")
    return texts


def in_seconds(duration: timedelta | None) -> float | None:
    """A duration as JSON has it."""
    return None if duration is None else duration.total_seconds()
