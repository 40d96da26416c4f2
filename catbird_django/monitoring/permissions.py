"""Who may see what, and do what (U7)."""

from __future__ import annotations

from typing import Protocol

VIEW_FLOW_RUN = "catbird.view_flowrun"
VIEW_PAYLOAD = "catbird.view_payload"
CANCEL_RUN = "catbird.cancel_run"
RETRY_RUN = "catbird.retry_run"
SEND_SIGNAL = "catbird.send_signal"
OVERRIDE_FOUR_EYES = "catbird.override_four_eyes"


class HasPermissions(Protocol):
    """Any kind of user that Django's authentication may give a request."""

    def has_perm(self, perm: str) -> bool: ...


def may_view_payload(user: HasPermissions) -> bool:
    """May this user see inputs, outputs, headers, errors, log lines, tags and keys?"""
    return user.has_perm(VIEW_PAYLOAD)


def may_cancel(user: HasPermissions) -> bool:
    """May this user cancel runs?"""
    return user.has_perm(CANCEL_RUN)


def may_retry(user: HasPermissions) -> bool:
    """May this user run again what has ended?"""
    return user.has_perm(RETRY_RUN)


def may_signal(user: HasPermissions) -> bool:
    """May this user give signals to runs of flows?"""
    return user.has_perm(SEND_SIGNAL)
