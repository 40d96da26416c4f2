"""One rule for every name that users give (R10)."""

from __future__ import annotations

import re

from catbird_django.errors import DefinitionError

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

INJECTED = frozenset({"input", "signal", "ctx", "item", "acc", "state"})
CONDITION_WORDS = frozenset(
    "and or not in eq ne gt gte lt lte contains exists true false null".split()  # noqa: SIM905 - reads better
)
RESERVED = INJECTED | CONDITION_WORDS


def check_name(name: object, what: str) -> str:
    """Return the name if it may be used; raise DefinitionError, saying what is allowed, if not."""
    if not isinstance(name, str):
        raise DefinitionError(f"the name of a {what} must be a string, not {name!r}")
    if not NAME.fullmatch(name):
        raise DefinitionError(
            f"{name[:80]!r} cannot be the name of a {what}: use lower-case letters, digits and _, "
            f"beginning with a letter, at most 64 characters"
        )
    if name in RESERVED:
        raise DefinitionError(f"{name!r} is a reserved word and cannot be the name of a {what}")
    return name
