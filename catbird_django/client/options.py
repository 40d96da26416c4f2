"""The options of a run, checked before any SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Literal, TypedDict, cast, get_args

from catbird_django.codec import encode_any
from catbird_django.conf import get_settings
from catbird_django.definitions.names import NAME
from catbird_django.errors import InvalidOption

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")  # PostgreSQL's text has neither NUL nor lone surrogates
LONGEST_DELAY = timedelta(days=3660)
LONGEST_KEY = 512  # bytes of UTF-8: it must fit into an index
MOST_TAGS = 20
LONGEST_TAG = 100  # characters

KeyOption = Literal["concurrency_key", "idempotency_key", "debounce_key"]
KEYS: tuple[KeyOption, ...] = get_args(KeyOption)


class CommonOptions(TypedDict, total=False):
    """Keyword arguments of every call that starts a run, of a task or of a flow."""

    queue: str
    """The queue to put it into; by default the task's or flow's own."""
    priority: int
    """-100 to 100, higher first; by default 0."""
    headers: dict[str, Any]
    """Anything that should travel with the run; the handler finds it in `ctx.headers`."""
    concurrency_key: str
    """At most one live run of the task or flow has this key; while there is one, the call returns its handle."""
    idempotency_key: str
    """At most one run of the task or flow has this key, unless it failed, was canceled or expired; likewise."""
    delay: float | timedelta
    """Not to be run before this much time, in seconds or as timedelta, has passed."""
    run_at: datetime
    """Not to be run before this time; it must have a time zone."""
    expires_at: datetime
    """A task not started by then, or a flow not ended, is expired; it must have a time zone."""
    tags: Sequence[str]
    """Words by which the run can be found; at most 20, of 1 to 100 characters."""
    using: str
    """The database alias whose transaction the call joins; by default `CATBIRD["DATABASE"]`."""


class RunOptions(CommonOptions, total=False):
    """Keyword arguments of every call that starts a run of a task."""

    debounce_key: str
    """At most one queued run of the task has this key; while there is one, it takes over input and options."""


class FlowRunOptions(CommonOptions, total=False):
    """Keyword arguments of every call that starts a run of a flow."""

    actor: str
    """Who starts it; shown to people, and who may not give a signal that asks for four eyes."""


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
    actor: str
    using: str

    @property
    def has_key(self) -> bool:
        return (self.concurrency_key or self.idempotency_key or self.debounce_key) is not None


def check_options(options: RunOptions) -> CheckedOptions:
    """Refuse what SQL would refuse of the options of a task's run, and name the option."""
    return _checked(options, RunOptions)


def check_flow_options(options: FlowRunOptions) -> CheckedOptions:
    """Refuse what SQL would refuse of the options of a flow's run, and name the option."""
    return _checked(options, FlowRunOptions)


def _checked(given: CommonOptions, known: type) -> CheckedOptions:
    unknown = given.keys() - known.__annotations__.keys()
    if unknown:
        names = ", ".join(known.__annotations__)
        raise TypeError(f"run() got an unexpected option {min(unknown)!r} (there are: {names})")
    settings = get_settings()
    if not given:
        return _no_options(settings.database)
    options = cast("dict[str, Any]", given)
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
        actor=checked_actor(options.get("actor", "")),
        using=options.get("using") or settings.database,
    )


@cache
def _no_options(using: str) -> CheckedOptions:
    return CheckedOptions(
        queue=None,
        priority=0,
        headers=None,
        concurrency_key=None,
        idempotency_key=None,
        debounce_key=None,
        delay=None,
        run_at=None,
        expires_at=None,
        tags=(),
        actor="",
        using=using,
    )


def _checked_queue(queue: object) -> str | None:
    if queue is not None and not (isinstance(queue, str) and NAME.fullmatch(queue)):
        raise InvalidOption(f"queue: {queue!r} is not a name (lower-case letters, digits and _, at most 64)")
    return queue


def _checked_priority(priority: object) -> int:
    if not isinstance(priority, int) or isinstance(priority, bool) or not -100 <= priority <= 100:
        raise InvalidOption(f"priority: must be a whole number between -100 and 100, not {priority!r}")
    return priority


def _checked_key(option: KeyOption, options: Mapping[str, Any]) -> str | None:
    key = options.get(option)
    if key is None:
        return None
    if others := [other for other in KEYS if other != option and options.get(other) is not None]:
        raise InvalidOption(f"{option}: cannot be given together with {others[0]}")
    return checked_key(option, key)


def checked_key(option: str, key: object) -> str:
    """A text that names one thing; raise InvalidOption for what an index cannot hold."""
    if (
        not isinstance(key, str)
        or not _can_be_stored(key)
        or not 1 <= len(key.encode("utf-8", "replace")) <= LONGEST_KEY
    ):
        raise InvalidOption(f"{option}: must be a string of 1 to {LONGEST_KEY} bytes, without NUL")
    return key


def checked_actor(actor: object) -> str:
    """Who does something, as it can be stored; raise InvalidOption for what is no text."""
    if not isinstance(actor, str):
        raise InvalidOption(f"actor: must be text, such as a user name, not {type(actor).__name__}")
    return storable(actor)


def checked_run_id(run_id: object) -> int:
    """The id of a run, as far as one can tell; raise InvalidOption for what is none."""
    if not isinstance(run_id, int) or isinstance(run_id, bool) or not 0 < run_id < 2**63:
        raise InvalidOption(f"run_id: must be the id of a run, a whole number, not {run_id!r:.80}")
    return run_id


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
    return UNSTORABLE.search(text) is None


def storable(text: str) -> str:
    """Text without what PostgreSQL does not take."""
    return UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _encoded_headers(headers: object, max_bytes: int) -> str | None:
    if headers is None:
        return None
    if not isinstance(headers, dict):
        raise InvalidOption(f"headers: must be a dict, not {type(headers).__name__}")
    return encode_any(headers, name="headers", max_bytes=max_bytes)
