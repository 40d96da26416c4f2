"""`settings.CATBIRD` as one frozen value: read once, checked once, passed on.

`problems()` lists everything that is wrong with the dict, for the system checks; `get_settings()` refuses to give out
settings that have a problem.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cache
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

Parse = Callable[[Any], Any]
LONGEST = timedelta(days=3660)


def _duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        duration = value
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LONGEST.total_seconds():
        duration = timedelta(seconds=value)
    else:
        raise ValueError("must be a number of seconds (at most ten years) or a timedelta")
    if not timedelta(0) < duration <= LONGEST:
        raise ValueError("must be longer than zero, and at most ten years")
    return duration


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("must be a whole number of at least 1")
    return value


def _optional_count(value: object) -> int | None:
    return None if value is None else _count(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be True or False")
    return value


def _alias(value: object) -> str:
    if not isinstance(value, str) or value not in django_settings.DATABASES:
        raise ValueError(f"must be an alias in DATABASES (there: {', '.join(sorted(django_settings.DATABASES))})")
    return value


def _optional_duration(value: object) -> timedelta | None:
    return None if value is None else _duration(value)


def _events(value: object) -> str:
    if value not in ("notable", "all"):
        raise ValueError('must be "notable" or "all"')
    return str(value)


def _dsn(value: object) -> str | None:
    if value is not None and not (isinstance(value, str) and value):
        raise ValueError("must be a connection string, or None to use the parameters of DATABASE")
    return value


def _module_names(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ValueError('must be a list of module names, such as ["tasks", "flows"]')
    if not all(isinstance(name, str) and all(part.isidentifier() for part in name.split(".")) for name in value):
        raise ValueError("must hold names of modules only")
    return tuple(value)


def _setting(default: Any, parse: Parse) -> Any:
    return field(default=parse(default) if parse is not _alias else default, metadata={"parse": parse})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `settings.CATBIRD` says, with defaults filled in. Durations may be given in seconds or as timedelta."""

    database: str = _setting("default", _alias)
    """The alias of the PostgreSQL database that holds catbird's tables."""
    notify: bool = _setting(True, _flag)
    """Wake sleeping workers and waiting callers by NOTIFY. Without it they poll."""
    listen_dsn: str | None = _setting(None, _dsn)
    """A direct connection for LISTEN, where DATABASE goes through a transaction pooler."""
    lease: timedelta = _setting(30, _duration)
    """How long a claim is held without a sign of life from its worker."""
    sweep_interval: timedelta = _setting(5, _duration)
    """How often, at least, one worker looks for claims whose lease ran out and for runs whose time has come."""
    poll_interval: timedelta = _setting(1, _duration)
    """How often an idle worker looks for work while it cannot LISTEN."""
    idle_poll_interval: timedelta = _setting(5, _duration)
    """How often an idle worker looks for work while LISTEN is known to be alive."""
    worker_ttl: timedelta = _setting(300, _duration)
    """After how long a worker that was not heard of is no longer shown as alive, and taken off the record."""
    concurrency: int = _setting(10, _count)
    """How many sync handlers (on threads), and how many async ones (on a loop), one worker runs at the same time."""
    prefetch: int = _setting(200, _count)
    """At most how many runs of one task a worker claims ahead of its free slots."""
    shutdown_grace: timedelta = _setting(25, _duration)
    """How long a stopping worker lets running handlers go on."""
    cancel_grace: timedelta = _setting(30, _duration)
    """How long a run may go on after it was canceled, before its claim is void."""
    interrupt_grace: timedelta = _setting(5, _duration)
    """How long a sync handler that has outlived its timeout may take to stop, before its thread is abandoned."""
    max_abandoned: int = _setting(3, _count)
    """After how many abandoned handlers a worker stops claiming and is replaced."""
    max_runs_per_worker: int | None = _setting(None, _optional_count)
    """After how many runs a worker stops claiming and is replaced; None for never."""
    max_worker_memory: int | None = _setting(None, _optional_count)
    """With how many megabytes of memory a worker stops claiming and is replaced; None for never."""
    max_lost: int = _setting(5, _count)
    """How often a run may lose its worker before it fails, unless its task says otherwise."""
    retention: timedelta | None = _setting(30 * 24 * 3600, _optional_duration)
    """How long finished runs are kept, unless their task says otherwise; None keeps them for ever."""
    events: str = _setting("notable", _events)
    """What goes into the events of a run: what is "notable", or "all" its transitions."""
    max_payload: int = _setting(1024 * 1024, _count)
    """The largest input, output or headers, in bytes of JSON."""
    task_modules: tuple[str, ...] = _setting(("tasks", "flows"), _module_names)
    """Modules of the installed apps in which tasks are looked for."""


_PARSERS: Mapping[str, Parse] = {item.name.upper(): item.metadata["parse"] for item in fields(Settings)}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with `settings.CATBIRD`."""

    key: str
    message: str
    is_unknown_key: bool = False


def problems() -> list[Problem]:
    """List everything that is wrong with `settings.CATBIRD`."""
    _, found = _parse(getattr(django_settings, "CATBIRD", {}))
    return found


@cache
def get_settings() -> Settings:
    """Return the settings; raise ImproperlyConfigured, naming every problem, if there are any."""
    values, found = _parse(getattr(django_settings, "CATBIRD", {}))
    if found:
        raise ImproperlyConfigured("; ".join(problem.message for problem in found))
    return Settings(**values)


def _parse(given: object) -> tuple[dict[str, Any], list[Problem]]:
    if not isinstance(given, Mapping):
        return {}, [Problem("", "settings.CATBIRD must be a dict")]
    values: dict[str, Any] = {}
    found: list[Problem] = []
    for key, value in given.items():
        parse = _PARSERS.get(key)
        if parse is None:
            found.append(_unknown_key(str(key)))
            continue
        try:
            values[key.lower()] = parse(value)
        except ValueError as error:
            found.append(Problem(key, f"settings.CATBIRD[{key!r}] {error}, not {value!r}"))
    return values, found


def _unknown_key(key: str) -> Problem:
    close = difflib.get_close_matches(key.upper(), _PARSERS, n=1)
    hint = f": did you mean {close[0]!r}?" if close else f" (known: {', '.join(_PARSERS)})"
    return Problem(key, f"settings.CATBIRD has no setting {key!r}{hint}", is_unknown_key=True)


def _forget_on_change(*, setting: str, **_: object) -> None:
    if setting in {"CATBIRD", "DATABASES"}:
        get_settings.cache_clear()


setting_changed.connect(_forget_on_change)
