"""Atomic steps: a handler and its completion in one transaction, so that what it writes happens once (F22)."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
from django.db import connections, transaction
from django.db.transaction import TransactionManagementError
from psycopg.pq import TransactionStatus

from catbird_django.engine.call import DATABASE_TROUBLE, blames_conflict, blames_data, blames_lock
from catbird_django.engine.steps import Claim
from catbird_django.failpoints import reach
from catbird_django.statuses import SettleVerdict
from catbird_django.worker.outcome import Completed, EndedEarly, Outcome, Released, Settled

logger = logging.getLogger("catbird.worker")

PAUSE = timedelta(seconds=1)
"""Before another attempt, while somebody keeps the run locked, or the database is away."""

Settle = Callable[[Completed | EndedEarly], SettleVerdict]


class _NotCompleted(Exception):
    """What the handler did must not stay."""

    def __init__(self, verdict: SettleVerdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict


class _Stage(enum.Enum):
    """How far a transaction has come."""

    BEGINNING = enum.auto()
    WORKING = enum.auto()
    SETTLING = enum.auto()
    COMMITTING = enum.auto()


class Transactions:
    """Runs work and settles its outcome in one transaction, on the thread that calls."""

    def __init__(self, *, using: str, settle: Settle) -> None:
        self._using = using
        self._settle = settle

    def run(self, claim: Claim, work: Callable[[], Completed | EndedEarly]) -> Outcome:
        """Do the work and settle what came of it: both, or neither.

        Raises what the work raises, and what keeps the transaction from being committed. Nothing has happened then; or,
        if the connection broke while it was being committed, all of it, and the claim is no longer ours.
        """
        stage = _Stage.BEGINNING
        raised: BaseException | None = None
        try:
            with transaction.atomic(using=self._using):
                stage = _Stage.WORKING
                try:
                    outcome = work()
                except BaseException as error:
                    raised = error
                    raise
                self._refuse_broken()
                stage = _Stage.SETTLING
                self._settle_or_refuse(outcome)
                stage = _Stage.COMMITTING
        except _NotCompleted as refused:
            return _undone(claim, refused.verdict)
        except DATABASE_TROUBLE as trouble:
            cause = trouble if raised is None else raised  # and not the trouble of undoing it
            if _is_nobodys_fault(cause, stage):
                return _released(claim, cause)
            raise cause from cause.__cause__
        reach("after-settle")
        return Settled(claim)

    def _settle_or_refuse(self, outcome: Completed | EndedEarly) -> None:
        verdict = self._settle(outcome)
        if verdict is not SettleVerdict.COMPLETED:
            raise _NotCompleted(verdict)

    def _refuse_broken(self) -> None:
        """Raise what says that nothing can be committed any more, though the handler did not say so."""
        connection: Any = connections[self._using]
        driver = connection.connection
        if driver is None or connection.closed_in_transaction:
            raise TransactionManagementError("the handler has closed the connection of its own transaction")
        is_aborted = (
            isinstance(driver, psycopg.Connection) and driver.info.transaction_status == TransactionStatus.INERROR
        )
        if connection.needs_rollback or is_aborted:
            raise TransactionManagementError(
                "the handler returned, but its transaction can no longer be committed: an error in it was caught "
                "outside of an atomic block of its own, or a rollback was asked for"
            )


def _is_nobodys_fault(error: BaseException, stage: _Stage) -> bool:
    """Whether an attempt was undone for what others did, or because the database was away, and can just be repeated."""
    match stage:
        case _Stage.WORKING:
            return blames_conflict(error)  # any other trouble is what the handler asked for
        case _Stage.COMMITTING:
            return blames_conflict(error) or blames_lock(error)
        case _Stage.BEGINNING | _Stage.SETTLING:
            return not blames_data(error)


def _undone(claim: Claim, verdict: SettleVerdict) -> Outcome:
    """What is left to do when a run was not completed, and what its handler wrote is undone."""
    logger.warning("what an atomic step wrote is undone", extra={"run_id": claim.run_id, "verdict": str(verdict)})
    if verdict is SettleVerdict.STALE:
        return Settled(claim)  # it is somebody else's now
    # Of one that is being canceled this is the end; one that somebody keeps locked is done again.
    return Released(claim, PAUSE if verdict is SettleVerdict.LOCKED else None)


def _released(claim: Claim, error: BaseException) -> Released:
    logger.warning("an atomic step is undone, and done again", extra={"run_id": claim.run_id, "error": str(error)})
    return Released(claim, None if blames_conflict(error) else PAUSE)
