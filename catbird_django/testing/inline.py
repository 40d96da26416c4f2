"""A worker without threads: it claims, runs and settles on the thread, and in the transaction, of the test (X4a).

It is put together from the parts of the real one; what those do on threads of their own (renew leases, listen, keep
house) is left out, or done here in turn.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from asgiref.sync import async_to_sync
from django.db import transaction

from catbird_django.client.interrupts import CancelRequested
from catbird_django.conf import get_settings
from catbird_django.definitions.registry import registry
from catbird_django.engine.call import DATABASE_TROUBLE
from catbird_django.engine.items import ItemClaim
from catbird_django.engine.steps import Claim
from catbird_django.engine.tasks import LaneHead, LaneRequest, TaskClaim
from catbird_django.engine.tick import tick
from catbird_django.errors import CatbirdError
from catbird_django.statuses import SettleVerdict
from catbird_django.testing.guard import alias_of_tests
from catbird_django.testing.report import Attempt, Ran
from catbird_django.testing.savepoints import is_broken, run_as_committed
from catbird_django.testing.substitutes import substitute_for
from catbird_django.worker.atomic import Transactions
from catbird_django.worker.executor import Executor
from catbird_django.worker.handlers import Handler
from catbird_django.worker.intake import Intake
from catbird_django.worker.kinds import kind_of
from catbird_django.worker.outcome import Completed, EndedEarly, Failed, Outcome, Settled
from catbird_django.worker.presence import Presence
from catbird_django.worker.repertoire import learn
from catbird_django.worker.reports import ClaimReporter, Reports
from catbird_django.worker.settlement import Settlement
from catbird_django.worker.watchdog import Watchdog

logger = logging.getLogger("catbird.testing")

T = TypeVar("T")

MOST_RUNS = 1000
MOST_MOVED = 1000  # by one round of the upkeep
HOLD = timedelta(seconds=1)
NOTHING = Ran()
# What a worker makes an outcome of although it is no Exception. Anything else ends the test: Ctrl-C, pytest.fail().
OUTCOMES = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError, CancelRequested)


class NeverIdle(CatbirdError):
    """There was always more to run, up to the limit."""


class OtherWorker(CatbirdError):
    """Another worker looks after this database, so that this one may not."""


def work_until_idle(*, at_most: int = MOST_RUNS, using: str | None = None) -> Ran:
    """Run everything that is due, here and now, one after the other, until nothing is; say what ran.

    The upkeep of a worker is done too: what the turned clock has made due is run, what is late expires or fails. What a
    handler raises is its run's failure, as in a worker. Raise NeverIdle when more than `at_most` handlers would run,
    and OnlyInTests for a database not made for tests.
    """
    with InlineWorker(using=alias_of_tests(using)) as worker:
        return worker.work(at_most=at_most)


class InlineWorker:
    """On record for as long as it is entered, as a context manager."""

    def __init__(self, *, using: str) -> None:
        self._using = using
        self._settings = get_settings()
        self._is_begun = False
        self._verdict: SettleVerdict | None = None
        self._must_end: BaseException | None = None
        self._repertoire = learn(registry, tasks=None, flows=None, using=using, adapt=self._adapt)
        self.next_due_in: timedelta | None = None
        """In how long there will be more to do, when all is done; None if time alone brings nothing."""

    def __enter__(self) -> InlineWorker:
        self._presence = Presence(queues=None, handlers=self._repertoire.names, slots=1, using=self._using)
        self._build()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self._presence.end()
        elif not is_broken(self._using):
            with suppress(*DATABASE_TROUBLE), transaction.atomic(using=self._using):
                self._presence.end()

    def _build(self) -> None:
        settings, using = self._settings, self._using
        self._intake = Intake(
            self._repertoire,
            capacities=self._repertoire.capacities(slots=1, prefetch=1),
            queues=None,
            worker_id=self._presence.worker_id,
            lease=settings.lease,
            all_events=settings.events == "all",
            using=using,
        )
        self._reports = Reports(using=using, notify=settings.notify)
        self._settlement = Settlement(
            using=using, notify=settings.notify, all_events=settings.events == "all", settled=lambda _: None
        )
        self._executor = Executor(
            self._repertoire.by_id,
            max_payload=settings.max_payload,
            is_canceled=self._is_canceled,
            reporter_for=partial(ClaimReporter, reports=self._reports, is_canceled=self._is_canceled),
            # It is never started, as no processes are: nobody may interrupt the thread of the test.
            watchdog=Watchdog(grace=settings.interrupt_grace, abandoned=lambda _: None),
            transactions=Transactions(using=using, settle=self._settle_with_its_work),
            clean_up=lambda: None,
        )

    def work(self, so_far: Ran = NOTHING, *, at_most: int) -> Ran:
        """Run what is due until nothing is, and add it to what ran so far."""
        attempts = list(so_far)
        while self._run_due(attempts, at_most):
            pass
        return replace(so_far, attempts=tuple(attempts))

    def _run_due(self, attempts: list[Attempt], at_most: int) -> bool:
        """Do the upkeep, and run what is due then; say whether anything was."""
        self._do_upkeep()
        count = len(attempts)
        while (claim := self._claim()) is not None:
            if len(attempts) >= at_most:
                raise NeverIdle(_never_idle(attempts, at_most))
            attempts.append(self._run(claim))
        return len(attempts) > count

    def _do_upkeep(self) -> None:
        while True:
            done = tick(
                self._presence.worker_id,
                hold=HOLD,
                limit=MOST_MOVED,
                cancel_grace=self._settings.cancel_grace,
                using=self._using,
            )
            if not done.is_elected:
                raise OtherWorker(
                    f"another worker does the upkeep of database {self._using!r}, or was killed doing it seconds ago: "
                    f"stop it before work_until_idle()"
                )
            self.next_due_in = done.next_due_in
            if not done.is_full:
                return

    def _claim(self) -> Claim | None:
        """Claim one run: highest priority first, then the oldest, as a worker with a single slot."""
        heads = self._intake.find_lanes()
        for head in sorted(heads, key=lambda head: (-head.priority, -head.head_age, head.head_id)):
            if head.rests_for is not None:
                self._note_rest(timedelta(seconds=head.rests_for))
            elif (claim := self._claim_from(head)) is not None:
                return claim
        return None

    def _claim_from(self, head: LaneHead) -> Claim | None:
        if head.is_suspect:
            return self._intake.claim_suspect([head.lane])
        return next(iter(self._intake.claim([LaneRequest(head.lane, low_id=0, limit=1)])), None)

    def _note_rest(self, rest: timedelta) -> None:
        """A circuit breaker keeps something back for so long (T9)."""
        self.next_due_in = rest if self.next_due_in is None else min(rest, self.next_due_in)

    def _run(self, claim: Claim) -> Attempt:
        self._is_begun = False
        handler = self._repertoire.by_id[claim.handler_id]
        outcome = self._run_atomic(claim) if handler.is_atomic else self._executor.run(claim)
        self._reports.send_words_of([claim.delivery])
        verdict = self._verdict if isinstance(outcome, Settled) else self._settlement.settle_here(outcome)
        if self._must_end is not None:
            raise self._must_end
        return Attempt(
            name=handler.name,
            run_id=claim.run_id if isinstance(claim, TaskClaim) else claim.flow_run_id,
            number=claim.attempt,
            outcome="lost" if verdict is None else verdict.value,
            error=_error_of(outcome),
            index=claim.place if isinstance(claim, ItemClaim) else None,
        )

    def _run_atomic(self, claim: Claim) -> Outcome:
        """Run what is completed in the transaction of its handler: callbacks wait for both (F22)."""
        outcomes: list[Outcome] = []
        try:
            run_as_committed(lambda: outcomes.append(self._executor.run(claim)))
        except OUTCOMES:
            logger.exception("an on-commit callback of an atomic step failed")  # what it is about is committed
        return outcomes[0]

    def _settle_with_its_work(self, outcome: Completed | EndedEarly) -> SettleVerdict:
        self._verdict = self._settlement.settle_with_its_work(outcome)
        return self._verdict

    def _is_canceled(self, claim: Claim) -> bool:
        """Ask the database, as the renewal of a lease would. Before the handler nobody can have canceled it."""
        if not self._is_begun:
            return False
        kind = kind_of(claim.delivery)
        [verdict] = kind.extend([claim.delivery], lease=self._settings.lease, using=self._using)
        return verdict in (SettleVerdict.CANCELING, SettleVerdict.STALE)

    def _adapt(self, handler: Handler) -> Handler:
        """The same handler, called in a savepoint on this thread; inline steps after it are run like any others."""
        return replace(handler.knowing(()), function=self._in_test(handler), is_async=False)

    def _in_test(self, handler: Handler) -> Callable[..., Any]:
        call = _sync(handler)
        # What is atomic has a transaction around it, which ends later.
        run = _just_call if handler.is_atomic else run_as_committed

        def call_in_test(*arguments: Any) -> Any:
            self._is_begun = True
            try:
                return run(lambda: _with_substitute(handler, call)(*arguments))
            except OUTCOMES:
                raise
            except BaseException as error:
                self._must_end = error
                raise

        return call_in_test


def _just_call(call: Callable[[], T]) -> T:
    return call()


def _sync(handler: Handler) -> Callable[..., Any]:
    if not handler.is_async:
        return handler.function

    async def call(*arguments: Any) -> Any:
        return await handler.function(*arguments)

    return async_to_sync(call)


def _with_substitute(handler: Handler, call: Callable[..., Any]) -> Callable[..., Any]:
    """What is to be called for this handler: itself, or what a test has put in its place."""
    substitute = substitute_for(handler.name)
    if substitute is None:
        return call
    if handler.what == "step":
        return lambda by_keyword, *_: substitute(**by_keyword)
    return substitute


def _error_of(outcome: Outcome) -> str:
    if not isinstance(outcome, Failed):
        return ""
    error = json.loads(outcome.error)
    return f"{error['type']}: {error['message']}"


def _never_idle(attempts: Sequence[Attempt], at_most: int) -> str:
    most = Counter(attempt.name for attempt in attempts).most_common(3)
    often = ", ".join(f"{name} {count} times" for name, count in most)
    return (
        f"{len(attempts)} handlers have run and there is still more to do: {often}. "
        f"If that is right, allow more than at_most={at_most}"
    )
