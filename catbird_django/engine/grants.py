"""`sql/grants.sql`, called from Python."""

from __future__ import annotations

from catbird_django.engine.call import Function

GRANT = Function("cb_grant", role="name", kind="text")
REVOKE = Function("cb_revoke", role="name")


def grant(role: str, kind: str, *, using: str) -> None:
    """Let a database role act as producer, worker or viewer."""
    GRANT.rows(using, role=role, kind=kind)


def revoke(role: str, *, using: str) -> None:
    """Take back everything that `grant` gave to a role."""
    REVOKE.rows(using, role=role)
