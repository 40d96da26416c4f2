"""Who may give a signal: what its declaration says, asked of a user (F13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catbird_django.models import StepRun


def may_give(user: Any, run_id: int, step: str, *, using: str) -> bool:
    """Whether the declaration of this step's signal leaves it to this user.

    What it says nothing of, or does not exist, is left to whoever judges the signal itself.
    """
    waiting = (
        StepRun.objects.using(using)
        .filter(flow_run=run_id, step__name=step)
        .select_related("step")
        .only("signal_overdue_at", "step__signal")
    ).first()
    if waiting is None or waiting.step.signal is None:
        return True
    return is_named(user, waiting.step.signal, is_overdue=waiting.signal_overdue_at is not None)


def is_named(user: Any, signal: Mapping[str, Any], *, is_overdue: bool) -> bool:
    """Whether a user is among those whom a signal names; everybody is where it names nobody."""
    names, groups = set(signal.get("users") or ()), set(signal.get("groups") or ())
    permission = signal.get("permission") or ""
    if not names and not groups and not permission:
        return True
    if is_overdue and signal.get("escalate_to"):
        groups.add(signal["escalate_to"])
    return (
        user.get_username() in names
        or bool(permission and user.has_perm(permission))
        or bool(groups and user.groups.filter(name__in=groups).exists())
    )
