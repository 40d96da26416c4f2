"""`sql/watching.sql`, called from Python."""

from __future__ import annotations

from datetime import timedelta

from catbird_django.engine.call import FleetingFunction

WATCH = FleetingFunction("cb_watch", duration="interval")


def watch(duration: timedelta, *, using: str) -> None:
    """Say that somebody wants to be told, for so long, that runs have ended; they must look once more afterwards."""
    WATCH.rows(using, duration=duration)
