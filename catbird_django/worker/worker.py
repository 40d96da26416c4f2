"""One worker process: builds the parts, starts them, stops them in order."""

from __future__ import annotations

import logging
import os
import queue
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from django.db import connections

import catbird_django
from catbird_django.client.registration import register_tasks
from catbird_django.conf import Settings
from catbird_django.definitions.registry import Registry
from catbird_django.definitions.task import TaskDefinition
from catbird_django.engine import tasks as engine
from catbird_django.engine import workers
from catbird_django.engine.call import DATABASE_TROUBLE
from catbird_django.engine.schema import require_current_schema
from catbird_django.engine.tasks import Delivery, TaskClaim
from catbird_django.errors import DefinitionError, UnknownName
from catbird_django.worker.bell import Bell
from catbird_django.worker.capacity import Capacities, Capacity
from catbird_django.worker.claim_loop import Calls, ClaimLoop
from catbird_django.worker.event_loop import LoopRunner
from catbird_django.worker.executor import Executor
from catbird_django.worker.handlers import build_handlers
from catbird_django.worker.leases import LeaseKeeper
from catbird_django.worker.outcome import Outcome, Released
from catbird_django.worker.reports import ClaimReporter, Reports
from catbird_django.worker.settlement import Settlement
from catbird_django.worker.threads import ThreadRunner
from catbird_django.worker.tick import Ticker
from catbird_django.worker.wakeups import Wakeups
from catbird_django.worker.watchdog import Attempt, Watchdog

logger = logging.getLogger("catbird.worker")

LOOK_AFTER_PARTS_EVERY = 1.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What one worker process should do."""

    concurrency: int
    queues: Sequence[str] | None = None
    tasks: Sequence[str] | None = None
    until_idle: bool = False


class Worker:
    """Claims, runs and settles until it is told to stop."""

    def __init__(self, options: WorkerOptions, settings: Settings, registry: Registry) -> None:
        self._options = options
        self._settings = settings
        self._using = settings.database
        self._stop: queue.SimpleQueue[None] = queue.SimpleQueue()
        definitions = _runnable(registry, options.tasks)
        require_current_schema(using=self._using)
        self._handlers = build_handlers(definitions, register_tasks(definitions, using=self._using))
        self.abandoned_count = 0
        """Handlers that outlived their timeout and could not be stopped."""
        self._abandoned: set[Delivery] = set()
        self._told_abandoned = 0
        self.id = workers.register_worker(self._introduction(), using=self._using)
        self._build()

    def _build(self) -> None:
        options, settings = self._options, self._settings
        self._bell = Bell()
        self._leases = LeaseKeeper(
            self.id, lease=settings.lease, using=self._using, stop_handler=lambda held: self._event_loop.cancel(held)
        )
        self._watchdog = Watchdog(grace=settings.interrupt_grace, abandoned=self._abandon)
        self._reports = Reports(using=self._using, notify=settings.notify)
        self._executor = executor = Executor(
            self._handlers,
            max_payload=settings.max_payload,
            is_canceled=self._is_canceled,
            reporter_for=partial(ClaimReporter, reports=self._reports, is_canceled=self._is_canceled),
            watchdog=self._watchdog,
        )
        self._settlement = Settlement(
            using=self._using,
            notify=settings.notify,
            all_events=settings.events == "all",
            settled=self._settled,
            send_words_of=self._reports.send_words_of,
        )
        self._threads = ThreadRunner(options.concurrency, run=executor.run, finish=self._finish)
        self._event_loop = LoopRunner(options.concurrency, run=executor.run_async, finish=self._finish)
        self._capacities = self._build_capacities()
        self._ticker = Ticker(
            self.id,
            interval=settings.sweep_interval,
            cancel_grace=settings.cancel_grace,
            using=self._using,
            wake_workers=self._wake_workers,
        )
        self._claim_loop = ClaimLoop(
            calls=self._build_calls(),
            capacities=self._capacities,
            bell=self._bell,
            poll_interval=settings.poll_interval,
            idle_poll_interval=settings.idle_poll_interval,
        )
        self._wakeups = Wakeups(
            self.id,
            using=self._using,
            dsn=settings.listen_dsn,
            has_work=self._claim_loop.notified,
            is_due=self._ticker.wake,
            is_canceled=self._leases.wake,
        )

    def _build_capacities(self) -> Capacities:
        on_threads = Capacity(self._options.concurrency, prefetch=self._settings.prefetch)
        on_loop = Capacity(self._options.concurrency, prefetch=self._settings.prefetch)
        handlers = self._handlers.values()
        return Capacities({handler.task_id: on_loop if handler.is_async else on_threads for handler in handlers})

    def _build_calls(self) -> Calls:
        return Calls(
            find_lanes=partial(engine.find_task_lanes, list(self._handlers), self._options.queues, using=self._using),
            claim=partial(
                engine.claim_tasks,
                worker_id=self.id,
                lease=self._settings.lease,
                all_events=self._settings.events == "all",
                using=self._using,
            ),
            announce_sleep=partial(workers.announce_sleep, self.id, using=self._using),
            find_writers=partial(workers.find_writers, using=self._using),
            hand_over=self._hand_over,
            has_settled_enough=self._has_settled_enough,
            is_listening=lambda: self._wakeups.is_listening(),
            is_idle=self._is_idle,
            stop_if_asked_to=self._stop_if_asked_to,
        )

    @property
    def task_names(self) -> list[str]:
        """What this worker can run."""
        return sorted(handler.name for handler in self._handlers.values())

    def run(self) -> bool:
        """Work until `stop()` is called, then stop in order; False if handlers had to be left behind."""
        self._start()
        try:
            while not self._is_told_to_stop(within=LOOK_AFTER_PARTS_EVERY):
                self._refuse_dead_parts()
                self._tell_abandoned()
                if self.needs_replacement:
                    logger.error("too many handlers were abandoned, draining", extra={"worker_id": self.id})
                    break
        finally:
            finished = self._shut_down()
        return finished

    @property
    def needs_replacement(self) -> bool:
        """Whether so many handlers were abandoned that this process should make room for another (T8)."""
        return self.abandoned_count >= self._settings.max_abandoned

    def stop(self) -> None:
        """Ask the worker to stop: claim no more, finish what runs within the grace, give back the rest.

        May be called from a signal handler: unlike an Event, this queue can be used while it is being used.
        """
        self._stop.put(None)

    def _is_told_to_stop(self, *, within: float) -> bool:
        try:
            self._stop.get(timeout=within)
        except queue.Empty:
            return False
        return True

    def _start(self) -> None:
        logger.info("worker started", extra={"worker_id": self.id, "tasks": self.task_names})
        self._leases.start()
        self._reports.start()
        self._settlement.start()
        self._watchdog.start()
        self._threads.start()
        self._event_loop.start()
        if self._settings.notify:
            self._wakeups.start()
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
            self._watchdog,
            self._threads,
            self._event_loop,
        )
        for part in parts:
            if not part.is_alive():
                raise RuntimeError(f"{type(part).__name__} has died; see the log for why")

    def _hand_over(self, claims: Sequence[TaskClaim]) -> None:
        """Give claims to whoever runs them."""
        self._leases.hold([claim.delivery for claim in claims])
        on_threads = [claim for claim in claims if not self._handlers[claim.task_id].is_async]
        on_loop = [claim for claim in claims if self._handlers[claim.task_id].is_async]
        for share, runner in ((on_threads, self._threads), (on_loop, self._event_loop)):
            if share:
                self._capacities[share[0].task_id].take(len(share))
                runner.submit(share)

    def _finish(self, outcome: Outcome) -> None:
        """Take the outcome of a claim from whoever ran it."""
        self._settlement.add(outcome)
        task_id = outcome.claim.task_id
        if self._capacities[task_id].give_back(task_id, finished=True):
            self._bell.ring()

    def _abandon(self, attempt: Attempt) -> None:
        """Settle a claim without its thread, which could not be stopped, and give the slot to a new one."""
        logger.error("a handler could not be stopped", extra={"run_id": attempt.claim.run_id})
        outcome = self._executor.abandon(attempt.claim)
        self._abandoned.add(attempt.claim.delivery)
        self._threads.replace(attempt.thread)
        self._finish(outcome)
        self.abandoned_count += 1

    def _tell_abandoned(self) -> None:
        """Let the worker's page show what was abandoned."""
        if (count := self.abandoned_count) == self._told_abandoned:
            return
        try:
            if workers.count_abandoned(self.id, count, using=self._using):
                self._told_abandoned = count
        except DATABASE_TROUBLE as error:
            logger.warning("cannot tell of abandoned handlers", extra={"error": str(error)})
        finally:
            connections.close_all()

    def _settled(self, deliveries: Sequence[Delivery]) -> None:
        """Let go of what the database has taken; perhaps only that kept us from claiming."""
        self._leases.let_go(deliveries)
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

    def _is_canceled(self, claim: TaskClaim) -> bool:
        # An abandoned handler, too, should stop at its next word.
        return self._leases.is_canceled(claim.delivery) or (bool(self._abandoned) and claim.delivery in self._abandoned)

    def _is_idle(self) -> bool:
        return not self._capacities.in_flight and not self._settlement.backlog

    def _stop_if_asked_to(self) -> None:
        """There was nothing to do, neither here nor in the database."""
        if self._options.until_idle:
            self.stop()

    def _shut_down(self) -> bool:
        """Stop claiming, let running handlers end within the grace, give back the others, settle, say goodbye."""
        deadline = time.monotonic() + self._settings.shutdown_grace.total_seconds()
        self._claim_loop.stop()
        self._ticker.stop()
        for claim in self._threads.take_back() + self._event_loop.take_back():
            self._capacities[claim.task_id].give_back(claim.task_id, finished=False)
            self._settlement.add(Released(claim))
        while self._capacities.in_flight and time.monotonic() < deadline:
            time.sleep(0.02)
        left_behind = self._capacities.in_flight
        self._threads.stop()
        self._event_loop.stop()
        self._watchdog.stop()
        self._tell_abandoned()
        is_settled = self._settlement.stop(timeout=max(2.0, deadline - time.monotonic()))
        self._reports.stop(timeout=max(2.0, deadline - time.monotonic()))  # before what is held is given back
        self._leases.stop()
        self._wakeups.stop()
        if is_settled:
            self._say_goodbye(left_behind)
        return is_settled and not left_behind

    def _say_goodbye(self, left_behind: int) -> None:
        """Give back what handlers still hold, and mark this worker as stopped, if the database is there."""
        try:
            held = [(delivery, None) for delivery in sorted(self._leases.held)]
            engine.release_tasks(held, notify=self._settings.notify, using=self._using)
            workers.stop_worker(self.id, using=self._using)
        except DATABASE_TROUBLE as error:
            logger.warning("cannot say goodbye", extra={"error": str(error)})
        finally:
            connections.close_all()
        logger.info("worker stopped", extra={"worker_id": self.id, "left_behind": left_behind})

    def _introduction(self) -> workers.WorkerRow:
        return workers.WorkerRow(
            boot_id=uuid4(),
            host=socket.gethostname(),
            pid=os.getpid(),
            version=catbird_django.__version__,
            queues=self._options.queues,
            handlers=[handler.name for handler in self._handlers.values()],
            slots=self._options.concurrency,
        )


def _runnable(registry: Registry, names: Sequence[str] | None) -> list[TaskDefinition]:
    """The tasks to run: those with a handler here, or the named ones. Two of one name are refused."""
    if registry.conflicts:
        raise DefinitionError("; ".join(str(conflict) for conflict in registry.conflicts.values()))
    definitions = [definition for definition in registry.tasks.values() if definition.handler is not None]
    if names is None:
        return definitions
    known = {definition.name: definition for definition in definitions}
    if unknown := [name for name in names if name not in known]:
        raise UnknownName(f"no task named {unknown[0]!r} has a handler here (there are: {', '.join(sorted(known))})")
    return [known[name] for name in names]
