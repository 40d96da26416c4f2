"""Statements and how long each took, as the server's log has them (`log_min_duration_statement = 0`)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

LINE = re.compile(r"\[(\d+)\] LOG:  duration: ([\d.]+) ms  (parse|bind|execute|statement)[^:]*: (.*(?:\n\t.*)*)")
EXECUTED = ("execute", "statement")


@dataclass(frozen=True, slots=True)
class Statement:
    """One that was executed, and how long parsing, binding and executing it took together."""

    text: str
    milliseconds: float


def statements_in(log: str) -> Iterator[Statement]:
    """The statements executed, in the order in which they ended. Sessions may take turns in the log."""
    prepared: defaultdict[str, float] = defaultdict(float)  # by session: what parsing and binding took
    for session, milliseconds, phase, text in LINE.findall(log):
        prepared[session] += float(milliseconds)
        if phase in EXECUTED:
            yield Statement(text, prepared.pop(session))
