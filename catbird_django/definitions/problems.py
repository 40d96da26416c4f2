"""What is wrong with a definition, and where: found all together, reported as one error or as system checks (F2)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from catbird_django.errors import DefinitionError


class ProblemKind(Enum):
    """What a problem is about."""

    SHAPE = auto()
    TYPES = auto()


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    location: str
    message: str
    kind: ProblemKind = ProblemKind.SHAPE

    def __str__(self) -> str:
        return f"{self.location}: {self.message}"


def refuse_problems(what: str, problems: Sequence[Problem]) -> None:
    """Raise one DefinitionError for all of them, if there are any."""
    if not problems:
        return
    texts = [str(problem) for problem in problems]
    message = texts[0] if len(texts) == 1 else "\n  ".join([f"{len(texts)} things are wrong with {what}:", *texts])
    raise DefinitionError(message, problems=texts)


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: what was probably meant, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
