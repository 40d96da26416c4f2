"""Runs pieces of work in the transaction of a test as if each had a connection of its own.

Whatever a piece breaks is rolled back to where it began, and what it left for after the commit is done after it, since
the transaction of a test is never committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar, cast

from django.db import connections, transaction

from catbird_django.errors import CatbirdError
from catbird_django.worker.handler_connections import give_up, has_failed_transaction, has_open_transaction

logger = logging.getLogger("catbird.testing")

T = TypeVar("T")


class BrokenTransaction(CatbirdError):
    """A handler has caught an error of the database without `atomic()` around what caused it.

    Inside a test's transaction what it wrote is lost with the error. Catch it outside of an `atomic()` block.
    """


def run_as_committed(call: Callable[[], T]) -> T:
    """Call this as if what it writes were committed: after it, or after its failure, do what waits for the commit."""
    aliases = [wrapper.alias for wrapper in connections.all(initialized_only=True) if wrapper.in_atomic_block]
    planned = {alias: len(connections[alias].run_on_commit) for alias in aliases}
    try:
        return _run_in_savepoints(call, aliases)
    finally:
        for alias, count in planned.items():
            _run_on_commit(alias, aliases, leave=count)
        _close_what_was_left_open(aliases)


def is_broken(using: str) -> bool:
    """Whether the current transaction can only be rolled back."""
    wrapper = connections[using]
    return wrapper.in_atomic_block and (wrapper.needs_rollback or has_failed_transaction(wrapper))


def _run_in_savepoints(call: Callable[[], T], aliases: Sequence[str]) -> T:
    """Call this; keep what it has written also when it raises, as without a transaction, if that is possible at all."""
    with ExitStack() as blocks:
        for alias in aliases:
            blocks.enter_context(_savepoint(alias))
        try:
            value = call()
        except BaseException as error:  # noqa: BLE001 - raised again outside of the savepoints, which it must not undo
            _roll_back_broken(aliases)
            failure = error
        else:
            if not _roll_back_broken(aliases):
                return value
            failure = BrokenTransaction(
                "the handler has caught an error of the database without atomic() around what caused it: in the "
                "transaction of a test nothing works after that, and what the handler wrote is lost"
            )
    raise failure


def _savepoint(using: str) -> transaction.Atomic:
    block = transaction.atomic(using=using)
    # Django's own mark for blocks that code under test does not know of: in them atomic(durable=True) is allowed.
    block._from_testcase = True  # type: ignore[attr-defined]  # noqa: SLF001
    return block


def _roll_back_broken(aliases: Sequence[str]) -> bool:
    """Have the broken ones of these transactions rolled back to their savepoints; say whether there were any."""
    broken = [alias for alias in aliases if is_broken(alias)]
    for alias in broken:
        transaction.set_rollback(True, using=alias)
    return bool(broken)


def _run_on_commit(using: str, aliases: Sequence[str], *, leave: int) -> None:
    """Do what was planned for after the commit, as `captureOnCommitCallbacks` does; but do it once."""
    wrapper = connections[using]
    while len(wrapper.run_on_commit) > leave:
        # Its type in django-stubs is that of Django 4.1.
        _, callback, is_robust = cast("tuple[Any, Callable[[], object], bool]", wrapper.run_on_commit.pop(leave))
        try:
            _run_in_savepoints(callback, aliases)
        except Exception:
            if not is_robust:
                raise
            logger.exception("a robust on-commit callback failed")


def _close_what_was_left_open(aliases: Sequence[str]) -> None:
    """Close the connections on which there is a transaction, and was none before."""
    for wrapper in connections.all(initialized_only=True):
        if wrapper.alias not in aliases and has_open_transaction(wrapper):
            give_up(wrapper)
