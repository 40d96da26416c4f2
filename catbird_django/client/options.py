"""The options of a run, checked before any SQL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from catbird_django.codec import encode_any
from catbird_django.conf import get_settings
from catbird_django.definitions.names import NAME
from catbird_django.errors import InvalidOption

LONGEST_DELAY = timedelta(days=3660)
LONGEST_KEY = 512  # bytes of UTF-8: it must fit into an index


class RunOptions(TypedDict, total=False):
    """Keyword arguments of every call that starts a run."""

    queue: str
    """The queue to put it into; by default the task's own."""
    priority: int
    """-100 to 100, higher first; by default 0."""
    headers: dict[str, Any]
    """Anything that should travel with the run; the handler finds it in `ctx.headers`."""
    concurrency_key: str
    """At most one live run of the task has this key; while there is one, the call returns its handle."""
    idempotency_key: str
    """At most one run of the task has this key, unless it failed, was canceled or expired; likewise."""
    delay: float | timedelta
    """Not to be run before this much time, in seconds or as timedelta, has passed."""
    run_at: datetime
    """Not to be run before this time; it must have a time zone."""
    using: str
    """The database alias whose transaction the call joins; by default `CATBIRD["DATABASE"]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOptions:
    """Options that SQL will accept."""

    queue: str | None
    priority: int
    headers: str | None
    concurrency_key: str | None
    idempotency_key: str | None
    delay: timedelta | None
    run_at: datetime | None
    using: str

    @property
    def is_delayed(self) -> bool:
        return self.delay is not None or self.run_at is not None


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
        concurrency_key=_checked_key("concurrency_key", options),
        idempotency_key=_checked_key("idempotency_key", options),
        delay=_checked_delay(options.get("delay"), options.get("run_at")),
        run_at=_checked_time("run_at", options.get("run_at")),
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


def _checked_key(option: Literal["concurrency_key", "idempotency_key"], options: RunOptions) -> str | None:
    key = options.get(option)
    if key is None:
        return None
    if options.get("concurrency_key") is not None and options.get("idempotency_key") is not None:
        raise InvalidOption("concurrency_key: cannot be given together with idempotency_key")
    if not isinstance(key, str) or "\x00" in key or not 1 <= len(key.encode("utf-8", "replace")) <= LONGEST_KEY:
        raise InvalidOption(f"{option}: must be a string of 1 to {LONGEST_KEY} bytes, without NUL")
    return key


def _checked_delay(delay: object, run_at: object) -> timedelta | None:
    if delay is None:
        return None
    if run_at is not None:
        raise InvalidOption("delay: cannot be given together with run_at")
    if isinstance(delay, int | float) and not isinstance(delay, bool) and abs(delay) <= LONGEST_DELAY.total_seconds():
        delay = timedelta(seconds=delay)
    if not isinstance(delay, timedelta) or not timedelta(0) <= delay <= LONGEST_DELAY:
        raise InvalidOption(f"delay: must be 0 or more seconds, or a timedelta, at most ten years, not {delay!r}")
    return delay


def _checked_time(option: str, moment: object) -> datetime | None:
    if moment is not None and not (isinstance(moment, datetime) and moment.utcoffset() is not None):
        raise InvalidOption(f"{option}: must be a datetime with a time zone, not {moment!r}")
    return moment


def _encoded_headers(headers: object, max_bytes: int) -> str | None:
    if headers is None:
        return None
    if not isinstance(headers, dict):
        raise InvalidOption(f"headers: must be a dict, not {type(headers).__name__}")
    return encode_any(headers, name="headers", max_bytes=max_bytes)
