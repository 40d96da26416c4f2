"""Atomic steps: a handler and its completion in one transaction, so that what it writes happens once (F22)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
from django.db import DatabaseError, connections, transaction
from django.db.transaction import TransactionManagementError
from psycopg.pq import TransactionStatus

from catbird_django.engine.call import blames_conflict, blames_lock
from catbird_django.engine.steps import Claim
from catbird_django.statuses import SettleVerdict
from catbird_django.worker.outcome import Completed, EndedEarly, Outcome, Released, Settled

logger = logging.getLogger("catbird.worker")

PAUSE_FOR_LOCKS = timedelta(seconds=1)
"""Before another attempt, while somebody keeps the run locked."""

Settle = Callable[[Completed | EndedEarly], SettleVerdict]


class _NotCompleted(Exception):
    """What the handler did must not stay."""

    def __init__(self, verdict: SettleVerdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict


class Transactions:
    """Runs work and settles its outcome in one transaction, on the thread that calls."""

    def __init__(self, *, using: str, settle: Settle) -> None:
        self._using = using
        self._settle = settle

    def run(self, claim: Claim, work: Callable[[], Completed | EndedEarly]) -> Outcome:
        """Do the work and settle what came of it: both, or neither.

        Raises what the work raises, and what keeps the transaction from being committed; nothing has happened then.
        """
        is_done = False
        try:
            with transaction.atomic(using=self._using):
                outcome = work()
                is_done = True
                self._refuse_broken()
                verdict = self._settle(outcome)
                if verdict is not SettleVerdict.COMPLETED:
                    raise _NotCompleted(verdict)
        except _NotCompleted as refused:
            return _undone(claim, refused.verdict)
        except DatabaseError as error:
            if blames_conflict(error) or (is_done and blames_lock(error)):
                return _released(claim, error)
            raise
        return Settled(claim)

    def _refuse_broken(self) -> None:
        """Raise what says that nothing can be committed any more, though the handler did not say so."""
        connection = connections[self._using]
        driver: Any = connection.connection
        is_aborted = (
            isinstance(driver, psycopg.Connection) and driver.info.transaction_status == TransactionStatus.INERROR
        )
        if connection.needs_rollback or is_aborted:
            raise TransactionManagementError(
                "the handler returned, but its transaction can no longer be committed: an error in it was caught "
                "outside of an atomic block of its own, or a rollback was asked for"
            )


def _undone(claim: Claim, verdict: SettleVerdict) -> Outcome:
    """What is left to do when a run was not completed, and what its handler wrote is undone."""
    logger.warning("what an atomic step wrote is undone", extra={"run_id": claim.run_id, "verdict": str(verdict)})
    if verdict is SettleVerdict.STALE:
        return Settled(claim)  # it is somebody else's now
    # Of one that is being canceled this is the end; one that somebody keeps locked is done again.
    return Released(claim, PAUSE_FOR_LOCKS if verdict is SettleVerdict.LOCKED else None)


def _released(claim: Claim, error: DatabaseError) -> Released:
    logger.warning("an atomic step met a lock conflict", extra={"run_id": claim.run_id, "error": str(error)})
    return Released(claim, PAUSE_FOR_LOCKS if blames_lock(error) else None)
