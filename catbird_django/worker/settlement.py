"""Collects outcomes and reports them to the database in batches.

A batch is whatever has come while the one before was under way: one when idle, hundreds under load.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from django.db import connections, transaction

from catbird_django.engine.call import DATABASE_TROUBLE, blames_data, blames_lock
from catbird_django.engine.steps import AnyDelivery, InlineOutput, skip_steps
from catbird_django.failpoints import before_commit, reach
from catbird_django.statuses import SettleVerdict
from catbird_django.worker.backoff import Backoff
from catbird_django.worker.kinds import Kind, kind_of
from catbird_django.worker.outcome import (
    Canceled,
    Completed,
    EndedEarly,
    Failed,
    Outcome,
    Released,
    Settled,
    Skipped,
    failure,
)
from catbird_django.worker.patience import Calling
from catbird_django.worker.set_aside import LONGEST_PAUSE, SetAside, find_locked

logger = logging.getLogger("catbird.worker")

MAX_BATCH = 500
MAX_BATCH_CHARACTERS = 8 * 1024 * 1024
SHORTEST_PAUSE = 0.1  # seconds between attempts while the database does not answer


class Settlement:
    """Settles on a thread and a connection of its own. Results are kept until the database has taken them."""

    def __init__(
        self,
        *,
        using: str,
        notify: bool,
        all_events: bool = False,
        settled: Callable[[Sequence[AnyDelivery]], None],
        send_words_of: Callable[[Sequence[AnyDelivery]], None] = lambda _: None,
        calling: Calling = nullcontext,
    ) -> None:
        self._calling = calling
        self._using = using
        self._notify = notify
        self._all_events = all_events
        self._settled = settled
        self._send_words_of = send_words_of
        self._outcomes: deque[Outcome] = deque()
        self._arrived = threading.Event()
        self._stopping = False
        self._unsettled = 0
        self._set_aside = SetAside(using=using)
        self._gives_up_at = float("inf")
        self._thread = threading.Thread(target=self._run, name="catbird-settlement", daemon=True)

    @property
    def backlog(self) -> int:
        """How many outcomes the database does not have yet."""
        return len(self._outcomes) + self._unsettled + len(self._set_aside)

    @property
    def set_aside(self) -> frozenset[AnyDelivery]:
        """Those whose outcomes wait because somebody else has locked their runs."""
        return self._set_aside.deliveries

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def add(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        if not self._arrived.is_set():
            self._arrived.set()

    def stop(self, *, timeout: float) -> bool:
        """Settle what is left, for at most `timeout` seconds; say whether all of it was, but for what is locked."""
        self._gives_up_at = time.monotonic() + timeout
        self._stopping = True
        self._arrived.set()
        self._thread.join(timeout + LONGEST_PAUSE)
        return not self._thread.is_alive()

    def _run(self) -> None:
        with self._calling():
            self._loop()

    def _loop(self) -> None:
        while not self._is_over():
            self._arrived.wait(self._set_aside.next_look_in())
            self._arrived.clear()
            self._take_up_again()
            while self._outcomes:
                self._settle_all(self._next_batch())
                self._take_up_again()
        connections.close_all()

    def _is_over(self) -> bool:
        if not self._stopping or self._outcomes:
            return False
        return not self._set_aside or time.monotonic() >= self._gives_up_at

    def _settle_all(self, batch: Sequence[Outcome]) -> None:
        for alike in _alike(batch):
            if type(alike[0]) is not Settled:
                self._settle_until_taken(alike)
        self._unsettled = 0
        deliveries = [outcome.claim.delivery for outcome in batch]
        if self._set_aside:
            waiting = self._set_aside.deliveries
            deliveries = [delivery for delivery in deliveries if delivery not in waiting]
        self._settled(deliveries)

    def _take_up_again(self) -> None:
        """Settle what was locked by others and is no longer."""
        if not self._set_aside:
            return
        try:
            free = self._set_aside.find_free()
        except DATABASE_TROUBLE as error:
            logger.warning("cannot look for locks, trying again", extra={"error": str(error)})
            connections.close_all()
            return
        if free:
            self._unsettled += len(free)  # as in a batch: first counted there, then no longer here
            self._set_aside.take(free)
            self._settle_all(free)

    def _next_batch(self) -> list[Outcome]:
        """The outcomes that have come, as far as one call should carry; those that are alike share a transaction."""
        batch: list[Outcome] = []
        size = 0
        while self._outcomes and len(batch) < MAX_BATCH and size < MAX_BATCH_CHARACTERS:
            self._unsettled += 1  # before it leaves the queue: the backlog must never look empty too early
            outcome = self._outcomes.popleft()
            batch.append(outcome)
            size += _size_of(outcome)
        return sorted(batch, key=lambda outcome: outcome.claim.run_id)  # one lock order for everyone

    def _settle_until_taken(self, batch: Sequence[Outcome]) -> None:
        """Settle outcomes that are alike, however long the database is away, and whatever it refuses."""
        parts: deque[Sequence[Outcome]] = deque([batch] if batch else [])
        backoff = Backoff(shortest=SHORTEST_PAUSE)
        while parts:
            try:
                self._settle_what_is_free(parts)
                backoff.reset()
            except DATABASE_TROUBLE as error:
                pause = backoff.next_pause()
                logger.warning("cannot settle, trying again", extra={"error": str(error), "retry_in": pause})
                connections.close_all()
                time.sleep(pause)

    def _settle_what_is_free(self, parts: deque[Sequence[Outcome]]) -> None:
        """Settle the first of these parts; what others keep locked of it is set aside, for that nobody waits."""
        batch = parts[0]
        try:
            verdicts = self._settle_next(parts)
        except DATABASE_TROUBLE as error:
            locked = self._find_locked(batch) if blames_lock(error) else set()
            if not locked:
                raise  # other trouble; or another lock, or one that is gone by now
            parts[0] = [outcome for outcome in batch if outcome.claim.delivery not in locked]
            if not parts[0]:
                parts.popleft()
            self._set_aside.add([outcome for outcome in batch if outcome.claim.delivery in locked])
        else:
            if SettleVerdict.LOCKED in verdicts:
                answers = zip(batch, verdicts, strict=True)
                self._set_aside.add([outcome for outcome, verdict in answers if verdict is SettleVerdict.LOCKED])

    def _find_locked(self, batch: Sequence[Outcome]) -> set[AnyDelivery]:
        return find_locked([outcome.claim.delivery for outcome in batch], using=self._using)

    def settle_here(self, outcome: Outcome) -> SettleVerdict | None:
        """Settle one outcome on the calling thread, in its transaction if it has one; return what became of it.

        None if it cannot be stored at all. Raises what the database raises, unless the outcome is to blame (F4a): also
        when somebody else keeps the run locked.
        """
        parts: deque[Sequence[Outcome]] = deque([[outcome]])
        verdicts: list[SettleVerdict] = []
        while parts:
            verdicts = self._settle_next(parts)
        return verdicts[0] if verdicts else None

    def settle_with_its_work(self, outcome: Completed | EndedEarly) -> SettleVerdict:
        """Settle one outcome as the last of the transaction that its handler has worked in; return what became of it.

        Raises whatever the database raises: then all of that transaction is to be undone.
        """
        reach("before-settle")
        if isinstance(outcome, Completed) and outcome.inline:
            try:
                with transaction.atomic(using=self._using):
                    return self._settle([outcome])[0]
            except DATABASE_TROUBLE as error:
                if not blames_data(error):
                    raise
                outcome = outcome._replace(inline=())
        with before_commit("before-settle-commit", self._using):
            return self._settle([outcome])[0]

    def _settle_next(self, parts: deque[Sequence[Outcome]]) -> list[SettleVerdict]:
        """Settle the first of these parts; one that the database refuses for what is in it becomes smaller ones."""
        reach("before-settle")
        try:
            with _savepoint(self._using), before_commit("before-settle-commit", self._using):
                verdicts = self._settle(parts[0])
        except DATABASE_TROUBLE as error:
            if not blames_data(error):
                raise
            parts.extendleft(reversed(_without_poison(parts.popleft(), error)))
            return []
        reach("after-settle")
        parts.popleft()
        return verdicts

    def _settle(self, batch: Sequence[Outcome]) -> list[SettleVerdict]:
        """Settle outcomes that are alike, in one call; say what became of each, in order."""
        kind = kind_of(batch[0].claim.delivery)
        deliveries = [outcome.claim.delivery for outcome in batch]
        if isinstance(batch[0], Failed | Released):
            self._send_words_of(deliveries)  # once the run is queued again it may be another's, and these too late
        match batch[0]:
            case Completed():
                verdicts = self._complete(kind, [outcome for outcome in batch if isinstance(outcome, Completed)])
            case EndedEarly():
                verdicts = self._complete_early(kind, [outcome for outcome in batch if isinstance(outcome, EndedEarly)])
            case Failed():
                failed = [outcome for outcome in batch if isinstance(outcome, Failed)]
                failures = [(outcome.claim.delivery, outcome.error, outcome.retry_in) for outcome in failed]
                verdicts = kind.fail(failures, notify=self._notify, using=self._using)
            case Released():
                delays = [outcome.delay for outcome in batch if isinstance(outcome, Released)]
                releases = list(zip(deliveries, delays, strict=True))
                verdicts = kind.release(releases, notify=self._notify, using=self._using)
            case Canceled():
                reasons = [outcome.reason for outcome in batch if isinstance(outcome, Canceled)]
                cancellations = list(zip(deliveries, reasons, strict=True))
                verdicts = kind.cancel(cancellations, notify=self._notify, using=self._using)
            case Skipped():
                skips: list[Any] = [(outcome.claim.delivery, outcome.reason) for outcome in batch]  # type: ignore[union-attr]
                verdicts = skip_steps(skips, notify=self._notify, using=self._using)
            case Settled():
                raise AssertionError("what is settled is not settled again")
        _report_stale(deliveries, verdicts)
        return verdicts

    def _complete(self, kind: Kind, batch: Sequence[Completed]) -> list[SettleVerdict]:
        completions = [(outcome.claim.delivery, outcome.output) for outcome in batch]
        how: dict[str, Any] = {"notify": self._notify, "all_events": self._all_events, "using": self._using}
        inline = [
            InlineOutput(place, step, output) for place, outcome in enumerate(batch) for step, output in outcome.inline
        ]
        return kind.complete(completions, inline=inline, **how) if inline else kind.complete(completions, **how)

    def _complete_early(self, kind: Kind, batch: Sequence[EndedEarly]) -> list[SettleVerdict]:
        assert kind.complete_early is not None  # noqa: S101 - for the type checker: only work of flows ends them
        endings = [(outcome.claim.delivery, outcome.output, outcome.reason) for outcome in batch]
        return kind.complete_early(endings, notify=self._notify, using=self._using)


def _savepoint(using: str) -> AbstractContextManager[None]:
    """In a transaction of the caller's, a part of it: what the database refuses must not undo the rest."""
    return transaction.atomic(using=using) if connections[using].in_atomic_block else nullcontext()


def _alike(batch: Sequence[Outcome]) -> Iterator[Sequence[Outcome]]:
    """The outcomes by what they are, and of what: mostly all of them are alike."""
    sorts = dict.fromkeys([(type(outcome), type(outcome.claim)) for outcome in batch])
    if len(sorts) == 1:
        yield batch
        return
    for sort in sorts:
        yield [outcome for outcome in batch if (type(outcome), type(outcome.claim)) == sort]


def _size_of(outcome: Outcome) -> int:
    match outcome:
        case Completed(output=text, inline=inline):
            return len(text) + sum(len(output) for _, output in inline)
        case EndedEarly(output=text) | Failed(error=text):
            return len(text)
        case Released() | Canceled() | Skipped() | Settled():
            return 0


def _without_poison(batch: Sequence[Outcome], error: Exception) -> list[Sequence[Outcome]]:
    """What to settle in place of a batch that the database refuses (F4a).

    One by one, so that the neighbours get through; in place of an outcome that cannot be stored, the failure to store
    it; nothing, if even that cannot be stored: then the lease runs out.
    """
    if len(batch) > 1:
        logger.warning("a batch was refused, settling one by one", extra={"size": len(batch), "error": str(error)})
        return [[outcome] for outcome in batch]
    [outcome] = batch
    if isinstance(outcome, Completed) and outcome.inline:
        logger.warning("refused with its inline steps, these are queued", extra={"run_id": outcome.claim.run_id})
        return [[outcome._replace(inline=())]]
    logger.error("a result cannot be stored", extra={"run_id": outcome.claim.run_id}, exc_info=error)
    return [[failure(outcome.claim, error)]] if isinstance(outcome, Completed | EndedEarly) else []


def _report_stale(deliveries: Sequence[AnyDelivery], verdicts: Sequence[SettleVerdict]) -> None:
    if SettleVerdict.STALE not in verdicts:
        return
    for delivery, verdict in zip(deliveries, verdicts, strict=True):
        if verdict is SettleVerdict.STALE:
            logger.warning("claim was lost, its result is dropped", extra={"run_id": delivery.run_id})
