"""Durations in words, as exact as a person needs."""

from __future__ import annotations

from datetime import timedelta

from django.utils.translation import gettext as _

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def in_words(duration: timedelta) -> str:
    """Say how long: `312 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`, `4 d 3 h`."""
    seconds = max(duration.total_seconds(), 0.0)  # two clocks of one failover may disagree
    if seconds < 1:
        return _("%(count)d ms") % {"count": int(seconds * 1000)}
    if seconds < MINUTE:
        return _("%(count).1f s") % {"count": int(seconds * 10) / 10}
    if seconds < HOUR:
        return _("%(minutes)d min %(seconds)d s") % _split(seconds, minutes=MINUTE, seconds=1)
    if seconds < DAY:
        return _("%(hours)d h %(minutes)d min") % _split(seconds, hours=HOUR, minutes=MINUTE)
    return _("%(days)d d %(hours)d h") % _split(seconds, days=DAY, hours=HOUR)


def in_one_unit(duration: timedelta) -> str:
    """Say how long, exactly and briefly: `90 s`, `5 min`, `36 h`, `2 d`."""
    seconds = duration.total_seconds()
    if seconds and seconds % DAY == 0:
        return _("%(count)d d") % {"count": seconds // DAY}
    if seconds and seconds % HOUR == 0:
        return _("%(count)d h") % {"count": seconds // HOUR}
    if seconds and seconds % MINUTE == 0:
        return _("%(count)d min") % {"count": seconds // MINUTE}
    return _("%(count)s s") % {"count": f"{seconds:.15g}"}


def _split(total: float, **units: int) -> dict[str, int]:
    """Divide seconds into these units, the largest first."""
    parts = {}
    for name, size in units.items():
        parts[name], total = int(total // size), total % size
    return parts
