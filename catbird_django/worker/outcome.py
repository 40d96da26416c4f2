"""How one claim ended."""

from __future__ import annotations

import json
import traceback
from datetime import timedelta
from typing import NamedTuple

from catbird_django.engine.steps import Claim

MAX_MESSAGE = 8 * 1024  # characters; an exception may say anything, at any length
MAX_TRACEBACK = 32 * 1024
MAX_REASON = 2000


class Completed(NamedTuple):
    """The handler returned; `output` is its value as JSON text."""

    claim: Claim
    output: str
    inline: tuple[tuple[str, str], ...] = ()
    """The inline steps that ran right after it, and what they returned; each after the one that it hangs on."""


class EndedEarly(NamedTuple):
    """The handler had the output of the whole flow already, as JSON text, and said why."""

    claim: Claim
    output: str
    reason: str


class Failed(NamedTuple):
    """The attempt went wrong; `error` is what is stored of it, as JSON text.

    It is tried again after `retry_in`, if the task still allows it: the database decides.
    """

    claim: Claim
    error: str
    retry_in: timedelta | None = None


class Released(NamedTuple):
    """The run goes back to the queue, at once or after a while, and no failure is counted."""

    claim: Claim
    delay: timedelta | None = None


class Canceled(NamedTuple):
    """The handler asked for the run, or for the flow run of its step, to be canceled."""

    claim: Claim
    reason: str


class Skipped(NamedTuple):
    """The handler of a step had nothing to do."""

    claim: Claim
    reason: str


class Settled(NamedTuple):
    """The database knows already how it ended: that was part of what the handler did."""

    claim: Claim


Outcome = Completed | EndedEarly | Failed | Released | Canceled | Skipped | Settled


def failure(claim: Claim, error: BaseException, retry_in: timedelta | None = None) -> Failed:
    """Describe an exception so that it can be stored, whatever it is."""
    return Failed(
        claim,
        retry_in=retry_in,
        error=json.dumps(
            {
                "type": _clean(type(error).__qualname__, 200),
                "message": _clean(_text_of(error), MAX_MESSAGE),
                "traceback": _clean(_traceback_of(error), MAX_TRACEBACK, keep_end=True),
            }
        ),
    )


def canceled(claim: Claim, reason: object) -> Canceled:
    """Say why a handler wants its run canceled, so that it can be stored, whatever it is."""
    return Canceled(claim, _clean(_text_of(reason), MAX_REASON))


def ended_early(claim: Claim, output: str, reason: object) -> EndedEarly:
    """Say why a handler ends its flow, so that it can be stored, whatever it is."""
    return EndedEarly(claim, output, _clean(_text_of(reason), MAX_REASON))


def _text_of(error: object) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - __str__ is the user's code
        return f"(its __str__ raised {type(broken).__qualname__})"


def _traceback_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error, limit=-30))
    except Exception as broken:  # noqa: BLE001 - formatting calls the user's __str__ and __repr__
        return f"(cannot be formatted: {type(broken).__qualname__})"


def _clean(text: str, limit: int, *, keep_end: bool = False) -> str:
    """Make text that jsonb takes: bounded, without NUL and lone surrogates."""
    if len(text) > limit:
        text = f"… {text[-limit:]}" if keep_end else f"{text[:limit]} …"
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
