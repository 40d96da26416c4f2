"""One worker process: builds the parts, starts them, stops them in order."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from django.db import connections

from catbird_django.conf import Settings
from catbird_django.definitions.registry import Registry
from catbird_django.engine import workers
from catbird_django.engine.schema import require_current_schema
from catbird_django.engine.silence import calls_within
from catbird_django.engine.steps import AnyDelivery, Claim
from catbird_django.engine.tasks import Delivery
from catbird_django.worker.atomic import Transactions
from catbird_django.worker.bell import Bell
from catbird_django.worker.claim_loop import Calls, ClaimLoop
from catbird_django.worker.doubts import Doubts
from catbird_django.worker.executor import Executor
from catbird_django.worker.housekeeping import Housekeeper
from catbird_django.worker.intake import Intake
from catbird_django.worker.isolation.processes import HandlerProcesses
from catbird_django.worker.leases import LeaseKeeper
from catbird_django.worker.orders import Order, Orders
from catbird_django.worker.outcome import Failed, Outcome, Released, Settled
from catbird_django.worker.patience import patience_of_calls, patience_of_renewals
from catbird_django.worker.presence import Presence
from catbird_django.worker.recycling import Limits
from catbird_django.worker.repertoire import learn
from catbird_django.worker.reports import ClaimReporter, Reports
from catbird_django.worker.runners import Runners
from catbird_django.worker.settlement import Settlement
from catbird_django.worker.shutdown import Shutdown
from catbird_django.worker.tick import Ticker
from catbird_django.worker.wakeups import Wakeups
from catbird_django.worker.watchdog import Attempt, Watchdog

logger = logging.getLogger("catbird.worker")

LOOK_AFTER_PARTS_EVERY = 1.0  # seconds
LOOK_WHILE_ENDING_EVERY = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What one worker process should do."""

    concurrency: int
    queues: Sequence[str] | None = None
    tasks: Sequence[str] | None = None
    flows: Sequence[str] | None = None
    """With neither of the two, all there are; with one of them, nothing else."""
    until_idle: bool = False
    once: bool = False
    """Claim once what fits, run it, and stop."""
    limits: Limits = Limits()


class Worker:
    """Claims, runs and settles until it is told to stop."""

    def __init__(self, options: WorkerOptions, settings: Settings, registry: Registry) -> None:
        self._options = options
        self._settings = settings
        self._using = settings.database
        self._orders = Orders()
        self._is_draining = False
        self._has_claimed_all = False
        self._settled_count = 0
        self.done_because = ""
        """Why another process should take the place of this one; empty if that is not needed."""
        self.abandoned_count = 0
        """Handlers that outlived their timeout and could not be stopped."""
        self._abandoned: set[AnyDelivery] = set()
        self._calling = partial(calls_within, patience_of_calls(settings.lease), using=self._using)
        with self._calling():
            require_current_schema(using=self._using)
            self._repertoire = learn(registry, tasks=options.tasks, flows=options.flows, using=self._using)

    def enter(self) -> None:
        """Go on record, once; `run` must follow, or the record stays."""
        options = self._options
        with self._calling():
            self._presence = Presence(
                queues=options.queues, handlers=self.handler_names, slots=options.concurrency, using=self._using
            )
        self.id = self._presence.worker_id
        self._build()

    def _build(self) -> None:
        options, settings, calling = self._options, self._settings, self._calling
        self._bell = Bell()
        self._leases = LeaseKeeper(
            self.id,
            lease=settings.lease,
            worker_ttl=settings.worker_ttl,
            using=self._using,
            stop_handler=lambda held: self._runners.cancel(held),
            come_back=self._come_back,
            calling=partial(calls_within, patience_of_renewals(settings.lease), using=self._using),
        )
        self._watchdog = Watchdog(grace=settings.interrupt_grace, abandoned=self._abandon)
        self._reports = Reports(using=self._using, notify=settings.notify, calling=calling)
        self._processes = HandlerProcesses(
            max_payload=settings.max_payload,
            limits=options.limits,
            interrupt_grace=settings.interrupt_grace,
            is_canceled=self._is_canceled,
        )
        self._doubts = Doubts(self._repertoire.allowed_failures)
        self._settlement = Settlement(
            using=self._using,
            notify=settings.notify,
            all_events=settings.events == "all",
            settled=self._settled,
            send_words_of=self._reports.send_words_of,
            calling=calling,
        )
        self._executor = Executor(
            self._repertoire.by_id,
            max_payload=settings.max_payload,
            is_canceled=self._is_canceled,
            reporter_for=partial(ClaimReporter, reports=self._reports, is_canceled=self._is_canceled),
            watchdog=self._watchdog,
            doubts=self._doubts,
            run_in_process=self._processes.run,
            interrupt_grace=settings.interrupt_grace,
            transactions=Transactions(using=self._using, settle=self._settlement.settle_with_its_work),
            left_thread=self._leave_thread,
        )
        self._runners = Runners(
            self._repertoire,
            concurrency=options.concurrency,
            prefetch=settings.prefetch,
            executor=self._executor,
            finish=self._finish,
        )
        self._housekeeper = Housekeeper(
            retention=settings.retention, worker_ttl=settings.worker_ttl, using=self._using, calling=calling
        )
        self._ticker = Ticker(
            self.id,
            interval=settings.sweep_interval,
            cancel_grace=settings.cancel_grace,
            using=self._using,
            wake_workers=self._wake_workers,
            ticked=self._housekeeper.ticked,
            calling=calling,
        )
        self._claim_loop = ClaimLoop(
            calls=self._build_calls(),
            capacities=self._runners.capacities,
            bell=self._bell,
            poll_interval=settings.poll_interval,
            idle_poll_interval=settings.idle_poll_interval,
            calling=calling,
        )
        self._wakeups = Wakeups(
            self.id,
            using=self._using,
            dsn=settings.listen_dsn,
            has_work=self._claim_loop.notified,
            is_due=self._ticker.wake,
            is_canceled=self._leases.wake,
            calling=calling,
        )
        self._shutdown = self._build_shutdown()

    def _build_shutdown(self) -> Shutdown:
        return Shutdown(
            claim_loop=self._claim_loop,
            ticker=self._ticker,
            housekeeper=self._housekeeper,
            runners=self._runners,
            processes=self._processes,
            watchdog=self._watchdog,
            settlement=self._settlement,
            reports=self._reports,
            leases=self._leases,
            wakeups=self._wakeups,
            presence=self._presence,
            notify=self._settings.notify,
            using=self._using,
        )

    def _build_calls(self) -> Calls:
        intake = Intake(
            self._repertoire,
            capacities=self._runners.capacities,
            queues=self._options.queues,
            worker_id=self.id,
            lease=self._settings.lease,
            all_events=self._settings.events == "all",
            using=self._using,
        )
        return Calls(
            find_lanes=intake.find_lanes,
            claim=intake.claim,
            claim_suspect=intake.claim_suspect,
            is_held=lambda claim: self._leases.holds(claim.delivery),
            announce_sleep=partial(workers.announce_sleep, self.id, using=self._using),
            find_writers=partial(workers.find_writers, using=self._using),
            hand_over=self._hand_over,
            put_off=self._put_off,
            in_doubt=lambda: self._doubts.tasks,
            has_settled_enough=self._has_settled_enough,
            is_listening=lambda: self._wakeups.is_listening(),
            is_idle=self._is_idle,
            stop_if_asked_to=self._stop_if_asked_to,
        )

    @property
    def handler_names(self) -> list[str]:
        """What this worker can run: tasks, and steps as flow.step."""
        return self._repertoire.names

    def run(self) -> bool:
        """Work until told to stop, then stop in order; False if handlers had to be left behind."""
        with self._calling():
            return self._work()

    def _work(self) -> bool:
        self._start()
        try:
            while not self._is_over(self._next_order()):
                self._refuse_dead_parts()
                self._processes.end_idle()
                self._tell()
        finally:
            finished = self._shut_down()
        return finished

    @property
    def needs_replacement(self) -> bool:
        """Whether another process should take the place of this one (T8, W8)."""
        return bool(self.done_because)

    def stop(self) -> None:
        """Ask the worker to stop: claim no more, finish what runs within the grace, give back the rest.

        May be called from a signal handler.
        """
        self._orders.give(Order.STOP)

    def drain(self) -> None:
        """Ask the worker to claim no more and to end when what runs has ended, however long that takes; as `stop`."""
        self._orders.give(Order.DRAIN)

    def _next_order(self) -> Order | None:
        return self._orders.next(within=LOOK_WHILE_ENDING_EVERY if self._is_ending() else LOOK_AFTER_PARTS_EVERY)

    def _is_over(self, order: Order | None) -> bool:
        if self.abandoned_count >= self._settings.max_abandoned:
            self._is_done(f"it has abandoned {self.abandoned_count} handlers")
            return True  # within the grace: what else runs here may be just as stuck
        if not self._is_draining and (reason := self._options.limits.exceeded_by(self._settled_count)):
            self._is_done(reason)
            order = order or Order.DRAIN
        if order is Order.DRAIN and not self._is_draining:
            self._begin_to_drain()
        return order is Order.STOP or (self._is_ending() and self._is_idle())

    def _is_ending(self) -> bool:
        return self._is_draining or self._has_claimed_all

    def _begin_to_drain(self) -> None:
        logger.info("worker drains", extra={"worker_id": self.id})
        self._is_draining = True
        self._shutdown.stop_claiming()

    def _is_done(self, because: str) -> None:
        logger.warning("worker makes room for another", extra={"worker_id": self.id, "because": because})
        self.done_because = because

    def _start(self) -> None:
        logger.info("worker started", extra={"worker_id": self.id, "handlers": self.handler_names})
        self._leases.start()
        self._reports.start()
        self._settlement.start()
        self._watchdog.start()
        self._runners.start()
        if self._settings.notify:
            self._wakeups.start()
        self._housekeeper.start()
        self._ticker.start()
        connections.close_all()  # this thread only waits from here on
        self._claim_loop.start()

    def _refuse_dead_parts(self) -> None:
        """Rather no worker than one that looks alive and does nothing: whoever keeps processes alive starts another."""
        parts = (
            self._claim_loop,
            self._settlement,
            self._reports,
            self._leases,
            self._ticker,
            self._housekeeper,
            self._watchdog,
            self._runners,
        )
        for part in parts:
            if not part.is_alive():
                raise RuntimeError(f"{type(part).__name__} has died; see the log for why")

    def _come_back(self) -> None:
        """Be on record again, after others took this worker for gone."""
        self._presence.come_back()
        self._wakeups.tell_again()
        self._claim_loop.notified()  # its announcement went with the row: it must be made again

    def _hand_over(self, claims: Sequence[Claim]) -> None:
        """Give claims to whoever runs them."""
        if self._options.once:
            self._claim_loop.claim_no_more()
        self._leases.hold([claim.delivery for claim in claims])
        self._runners.submit(claims)
        self._has_claimed_all = self._options.once

    def _put_off(self, handler_ids: Collection[int]) -> None:
        """Give back what has not begun of tasks whose circuit breaker is open: it would fail like the others (T9)."""
        for claim in self._runners.take_back(handler_ids):
            self._settlement.add(Released(claim))

    def _finish(self, outcome: Outcome) -> None:
        """Take the outcome of a claim from whoever ran it."""
        if type(outcome) is Failed:
            self._doubts.failed(outcome.claim)
        if type(outcome) is Settled:
            self._leases.let_go([outcome.claim.delivery])  # before a renewal finds it gone
        self._settlement.add(outcome)
        if self._runners.finished(outcome.claim.handler_id):
            self._bell.ring()

    def _abandon(self, attempt: Attempt) -> None:
        """Settle a claim without its thread, which could not be stopped, and give the slot to a new one."""
        logger.error("a handler could not be stopped", extra={"run_id": attempt.claim.run_id})
        outcome = self._executor.abandon(attempt.claim)
        self._abandoned.add(attempt.claim.delivery)
        self._runners.replace(attempt.thread)
        self._finish(outcome)
        self.abandoned_count += 1

    def _leave_thread(self, claim: Claim) -> None:
        """Count a thread that an async handler has left behind, busy with something that could not be stopped."""
        logger.error("a thread of an async handler could not be stopped", extra={"run_id": claim.run_id})
        self.abandoned_count += 1

    def _tell(self) -> None:
        self._presence.tell(abandoned_count=self.abandoned_count, is_draining=self._is_draining)

    def _settled(self, deliveries: Sequence[AnyDelivery]) -> None:
        """Let go of what the database has taken; perhaps only that kept us from claiming."""
        self._leases.let_go(deliveries)
        self._housekeeper.settled(len(deliveries))
        if self._doubts.settled(deliveries):
            self._claim_loop.look_anew()  # a circuit breaker may be open now
        if self._repertoire.step_ids and any(type(delivery) is not Delivery for delivery in deliveries):
            self._claim_loop.expect_more()  # the next steps may be due now
        self._settled_count += len(deliveries)
        if self._options.limits.runs is not None and self._settled_count >= self._options.limits.runs:
            self._claim_loop.claim_no_more()
            self.drain()
        if self._has_settled_enough():
            self._bell.ring()

    def _has_settled_enough(self) -> bool:
        """Back-pressure: what is finished and not yet settled would be run again after a crash."""
        # Two batches: while one is being settled the next may be claimed and run, else they would only take turns.
        return self._settlement.backlog <= 2 * self._settings.prefetch

    def _wake_workers(self, queues: Sequence[str]) -> None:
        """Work of these queues has become due: wake this worker, and whoever else sleeps."""
        self._bell.ring()
        if self._settings.notify:
            workers.wake_workers(queues, using=self._using)

    def _is_canceled(self, claim: Claim) -> bool:
        # An abandoned handler, too, should stop at its next word.
        return self._leases.is_canceled(claim.delivery) or (bool(self._abandoned) and claim.delivery in self._abandoned)

    def _is_idle(self) -> bool:
        return not self._runners.in_flight and not self._settlement.backlog

    def _stop_if_asked_to(self) -> None:
        """There was nothing to do, neither here nor in the database."""
        if self._options.until_idle or self._options.once:
            self.stop()

    def _shut_down(self) -> bool:
        self._tell()
        return self._shutdown.finish(deadline=time.monotonic() + self._settings.shutdown_grace.total_seconds())
