"""Who may see what."""

from __future__ import annotations

from typing import Protocol


class HasPermissions(Protocol):
    """Any kind of user that Django's authentication may give a request."""

    def has_perm(self, perm: str) -> bool: ...


def may_view_payload(user: HasPermissions) -> bool:
    """May this user see inputs, outputs, headers and errors?"""
    # `view_payload` is declared with flow runs (U7); until then whoever may see runs may see what is in them.
    return user.has_perm("catbird.view_taskrun")
