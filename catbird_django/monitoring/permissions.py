"""Who may see what."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin

    User = AbstractBaseUser | AnonymousUser | PermissionsMixin


def may_view_payload(user: User) -> bool:
    """May this user see inputs, outputs, headers and errors?"""
    # Until `view_payload` is declared (U7), whoever may see runs may see what is in them.
    return isinstance_has_perm(user, "catbird.view_taskrun")
