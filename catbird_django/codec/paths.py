"""Names a place inside a value the way a programmer would write it: `input.lines[2].price`."""

from __future__ import annotations

import json

LONGEST_KEY = 60


def join(path: str, step: object) -> str:
    """Extend a path by one step: a place in a list, a field, or any other key."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    if isinstance(step, str):
        return f"{path}.{step}" if step.isidentifier() else f"{path}[{quoted(step)}]"
    return f"{path}[{type(step).__name__}]"


def quoted(key: str) -> str:
    """Quote a key in ASCII and shorten it: it may hold anything, and ends up in logs and pages."""
    return json.dumps(key if len(key) <= LONGEST_KEY else key[:LONGEST_KEY] + "…")
