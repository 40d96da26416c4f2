"""The options of a run, checked before any SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, get_args

from catbird_django.codec import encode_any
from catbird_django.conf import get_settings
from catbird_django.definitions.names import NAME
from catbird_django.errors import InvalidOption

LONGEST_DELAY = timedelta(days=3660)
LONGEST_KEY = 512  # bytes of UTF-8: it must fit into an index
MOST_TAGS = 20
LONGEST_TAG = 100  # characters

KeyOption = Literal["concurrency_key", "idempotency_key", "debounce_key"]
KEYS: tuple[KeyOption, ...] = get_args(KeyOption)


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
    debounce_key: str
    """At most one queued run of the task has this key; while there is one, it takes over input and options."""
    delay: float | timedelta
    """Not to be run before this much time, in seconds or as timedelta, has passed."""
    run_at: datetime
    """Not to be run before this time; it must have a time zone."""
    expires_at: datetime
    """Not to be started after this time, but expired; it must have a time zone."""
    tags: Sequence[str]
    """Words by which the run can be found; at most 20, of 1 to 100 characters."""
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
    debounce_key: str | None
    delay: timedelta | None
    run_at: datetime | None
    expires_at: datetime | None
    tags: tuple[str, ...]
    using: str

    @property
    def has_key(self) -> bool:
        return (self.concurrency_key or self.idempotency_key or self.debounce_key) is not None


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
        debounce_key=_checked_key("debounce_key", options),
        delay=_checked_delay(options.get("delay"), options.get("run_at")),
        run_at=_checked_time("run_at", options.get("run_at")),
        expires_at=_checked_expiry(options.get("expires_at"), options.get("run_at")),
        tags=_checked_tags(options.get("tags", ())),
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


def _checked_key(option: KeyOption, options: RunOptions) -> str | None:
    key = options.get(option)
    if key is None:
        return None
    if others := [other for other in KEYS if other != option and options.get(other) is not None]:
        raise InvalidOption(f"{option}: cannot be given together with {others[0]}")
    if (
        not isinstance(key, str)
        or not _can_be_stored(key)
        or not 1 <= len(key.encode("utf-8", "replace")) <= LONGEST_KEY
    ):
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


def _checked_expiry(expires_at: object, run_at: datetime | None) -> datetime | None:
    checked = _checked_time("expires_at", expires_at)
    if checked is not None and run_at is not None and checked <= run_at:
        raise InvalidOption("expires_at: must be later than run_at")
    return checked


def _checked_tags(tags: object) -> tuple[str, ...]:
    if isinstance(tags, str) or not isinstance(tags, Sequence) or len(tags) > MOST_TAGS:
        raise InvalidOption(f"tags: must be a list of at most {MOST_TAGS} strings")
    for tag in tags:
        if not isinstance(tag, str) or not 1 <= len(tag) <= LONGEST_TAG or not _can_be_stored(tag):
            raise InvalidOption(f"tags: {tag!r:.120} is not a string of 1 to {LONGEST_TAG} characters, without NUL")
    return tuple(dict.fromkeys(tags))


def _can_be_stored(text: str) -> bool:
    """Whether PostgreSQL takes it: no NUL, and no half of a surrogate pair."""
    return not any(character == "\x00" or "\ud800" <= character <= "\udfff" for character in text)


def _encoded_headers(headers: object, max_bytes: int) -> str | None:
    if headers is None:
        return None
    if not isinstance(headers, dict):
        raise InvalidOption(f"headers: must be a dict, not {type(headers).__name__}")
    return encode_any(headers, name="headers", max_bytes=max_bytes)
