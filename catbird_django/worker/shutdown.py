"""The end of a worker, in order: claim no more, let handlers end, give back the rest, settle, say goodbye (W4)."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from django.db import connections

from catbird_django.engine.call import DATABASE_TROUBLE
from catbird_django.worker.claim_loop import ClaimLoop
from catbird_django.worker.housekeeping import Housekeeper
from catbird_django.worker.isolation.processes import HandlerProcesses
from catbird_django.worker.kinds import sorted_by_kind
from catbird_django.worker.leases import LeaseKeeper
from catbird_django.worker.outcome import Released
from catbird_django.worker.presence import Presence
from catbird_django.worker.reports import Reports
from catbird_django.worker.runners import Runners
from catbird_django.worker.set_aside import find_locked
from catbird_django.worker.settlement import Settlement
from catbird_django.worker.tick import Ticker
from catbird_django.worker.wakeups import Wakeups
from catbird_django.worker.watchdog import Watchdog

logger = logging.getLogger("catbird.worker")

LAST_WORDS = 2.0  # seconds that results and reports get in any case


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """Stops the parts of a worker."""

    claim_loop: ClaimLoop
    ticker: Ticker
    housekeeper: Housekeeper
    runners: Runners
    processes: HandlerProcesses
    watchdog: Watchdog
    settlement: Settlement
    reports: Reports
    leases: LeaseKeeper
    wakeups: Wakeups
    presence: Presence
    notify: bool
    using: str

    def stop_claiming(self) -> None:
        """Claim nothing more, and give back what no handler has begun. A second call changes nothing."""
        self.claim_loop.stop()
        for claim in self.runners.take_back():
            self.settlement.add(Released(claim))

    def finish(self, *, deadline: float) -> bool:
        """Let handlers end until the deadline, then stop everything; False if handlers or results were left behind."""
        self.stop_claiming()
        self.ticker.stop()
        self.housekeeper.stop()
        while self.runners.in_flight and time.monotonic() < deadline:
            time.sleep(0.02)
        self.processes.stop()  # what runs there can be ended, and is given back as the others
        left_behind = self.runners.in_flight
        self.runners.stop()
        self.watchdog.stop()
        is_settled = self.settlement.stop(timeout=_until(deadline))
        self.reports.stop(timeout=_until(deadline))  # before what is held is given back
        self.leases.stop()
        self.wakeups.stop()
        if is_settled:
            self._say_goodbye(left_behind)
        return is_settled and not left_behind and not self.settlement.set_aside

    def _say_goodbye(self, left_behind: int) -> None:
        """Give back what handlers still hold, and mark this worker as stopped, if the database is there."""
        try:
            held = self.leases.held - self.settlement.set_aside  # what has been done is not to be done again
            for kind, deliveries in sorted_by_kind(held - find_locked(held, using=self.using)):
                kind.release([(delivery, None) for delivery in deliveries], notify=self.notify, using=self.using)
            self.presence.end()
        except DATABASE_TROUBLE as error:
            logger.warning("cannot say goodbye", extra={"error": str(error)})
        finally:
            connections.close_all()
        extra = {"worker_id": self.presence.worker_id, "left_behind": left_behind}
        logger.info("worker stopped", extra=extra)


def _until(deadline: float) -> float:
    return max(LAST_WORDS, deadline - time.monotonic())
