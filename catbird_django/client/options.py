"""The options of a run, checked before any SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from catbird_django.codec import encode_any
from catbird_django.conf import get_settings
from catbird_django.definitions.names import NAME
from catbird_django.errors import InvalidOption


class RunOptions(TypedDict, total=False):
    """Keyword arguments of every call that starts a run."""

    queue: str
    """The queue to put it into; by default the task's own."""
    priority: int
    """-100 to 100, higher first; by default 0."""
    headers: dict[str, Any]
    """Anything that should travel with the run; the handler finds it in `ctx.headers`."""
    using: str
    """The database alias whose transaction the call joins; by default `CATBIRD["DATABASE"]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOptions:
    """Options that SQL will accept."""

    queue: str | None
    priority: int
    headers: str | None
    using: str


def check_options(options: RunOptions) -> CheckedOptions:
    """Refuse what SQL would refuse, and name the option."""
    unknown = options.keys() - RunOptions.__annotations__.keys()
    if unknown:
        known = ", ".join(RunOptions.__annotations__)
        raise TypeError(f"run() got an unexpected option {min(unknown)!r} (there are: {known})")
    settings = get_settings()
    return CheckedOptions(
        queue=_checked_queue(options.get("queue")),
        priority=_checked_priority(options.get("priority", 0)),
        headers=_encoded_headers(options.get("headers"), settings.max_payload),
        using=options.get("using") or settings.database,
    )


def _checked_queue(queue: object) -> str | None:
    if queue is not None and not (isinstance(queue, str) and NAME.fullmatch(queue)):
        raise InvalidOption(f"queue: {queue!r} is not a name (lower-case letters, digits and _, at most 64)")
    return queue


def _checked_priority(priority: object) -> int:
    if not isinstance(priority, int) or isinstance(priority, bool) or not -100 <= priority <= 100:
        raise InvalidOption(f"priority: must be a whole number between -100 and 100, not {priority!r}")
    return priority


def _encoded_headers(headers: object, max_bytes: int) -> str | None:
    if headers is None:
        return None
    if not isinstance(headers, dict):
        raise InvalidOption(f"headers: must be a dict, not {type(headers).__name__}")
    return encode_any(headers, name="headers", max_bytes=max_bytes)
