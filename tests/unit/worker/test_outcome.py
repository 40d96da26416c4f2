"""What is stored of an error: bounded, and always storable."""

import json
from uuid import uuid4

from catbird_django.engine.tasks import TaskClaim
from catbird_django.worker.outcome import MAX_MESSAGE, MAX_TRACEBACK, failure

CLAIM = TaskClaim(1, uuid4(), "default", 1, 0, "null", None, 1, 0, 0)


def stored(error: BaseException) -> dict[str, str]:
    text = failure(CLAIM, error).error
    kept: dict[str, str] = json.loads(text)
    assert "\x00" not in "".join(kept.values())
    "".join(kept.values()).encode("utf-8")  # no lone surrogate either
    return kept


class Rude(Exception):
    def __str__(self) -> str:
        raise ValueError("mind your own business")

    __repr__ = __str__


def test_type_message_and_traceback_are_kept() -> None:
    try:
        raise ValueError("no such order")
    except ValueError as error:
        kept = stored(error)

    assert (kept["type"], kept["message"]) == ("ValueError", "no such order")
    assert kept["traceback"].endswith("ValueError: no such order\n")
    assert "test_outcome.py" in kept["traceback"]


def test_an_error_that_cannot_be_printed_is_described() -> None:
    kept = stored(Rude())

    assert kept["type"] == "Rude"
    assert "its __str__ raised ValueError" in kept["message"]


def test_a_huge_message_is_cut() -> None:
    kept = stored(ValueError("x" * 50_000_000))

    assert len(kept["message"]) <= MAX_MESSAGE + 2
    assert len(kept["traceback"]) <= MAX_TRACEBACK + 2


def test_what_jsonb_refuses_is_escaped() -> None:
    kept = stored(ValueError("a\x00b\ud800c"))

    assert kept["message"] == r"a\x00b\ud800c"


def test_a_deep_recursion_is_an_error_like_any_other() -> None:
    def dive() -> None:
        dive()

    try:
        dive()
    except RecursionError as error:
        kept = stored(error)

    assert kept["type"] == "RecursionError"
    assert len(kept["traceback"]) < MAX_TRACEBACK
