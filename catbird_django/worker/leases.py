"""Keeps the leases of held claims alive, and the worker's own row; notices what was lost, and what was canceled."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from django.db import connections

from catbird_django.engine import workers
from catbird_django.engine.call import DATABASE_TROUBLE
from catbird_django.engine.steps import AnyDelivery
from catbird_django.failpoints import reach
from catbird_django.statuses import SettleVerdict
from catbird_django.worker.backoff import Backoff
from catbird_django.worker.kinds import Kind, sorted_by_kind
from catbird_django.worker.patience import Calling

logger = logging.getLogger("catbird.worker")

LETTING_GO = 0.1  # seconds that pass, at most, between the commit of a settlement and our hearing of it


class LeaseKeeper:
    """Renews every third of a lease, on a thread and a connection of its own, so that no busy handler can delay it."""

    def __init__(
        self,
        worker_id: int,
        *,
        lease: timedelta,
        worker_ttl: timedelta,
        using: str,
        stop_handler: Callable[[AnyDelivery], None],
        come_back: Callable[[], None],
        calling: Calling,
    ) -> None:
        self._calling = calling
        self._renew_worker_every = worker_ttl.total_seconds() / 5
        self._renew_worker_at = 0.0
        self._come_back = come_back
        self._stop_handler = stop_handler
        self._worker_id = worker_id
        self._lease = lease
        self._using = using
        self._held: set[AnyDelivery] = set()
        self._canceled: set[AnyDelivery] = set()
        self._woken = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="catbird-leases", daemon=True)

    @property
    def held(self) -> set[AnyDelivery]:
        """What this worker holds now: claimed, and not yet settled."""
        return self._held.copy()

    def holds(self, delivery: AnyDelivery) -> bool:
        return delivery in self._held

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def wake(self) -> None:
        """Renew now: some run was canceled, perhaps one of ours."""
        self._woken.set()

    def stop(self) -> None:
        self._stopping = True
        self._woken.set()
        self._thread.join(timeout=5)

    def is_canceled(self, delivery: AnyDelivery) -> bool:
        """Whether a handler should stop, as far as we know: its run was canceled, or its claim lost."""
        return delivery in self._canceled

    def hold(self, deliveries: Sequence[AnyDelivery]) -> None:
        self._held.update(deliveries)

    def let_go(self, deliveries: Sequence[AnyDelivery]) -> None:
        self._held.difference_update(deliveries)
        self._canceled.difference_update(deliveries)

    def _run(self) -> None:
        with self._calling():
            self._loop()

    def _loop(self) -> None:
        regular = self._lease.total_seconds() / 3
        pause = 0.0  # connect now: when it matters there may be no connection left
        backoff = Backoff()
        while True:
            self._woken.wait(pause)
            self._woken.clear()
            if self._stopping:
                break
            try:
                self._renew()
                # After the leases: nothing that happens to this worker's row may cost it its claims.
                self._renew_worker()
                backoff.reset()
                pause = regular
            except DATABASE_TROUBLE as error:
                pause = min(regular, backoff.next_pause())  # a lease outlasts few missed renewals
                logger.warning("cannot renew leases, trying again", extra={"error": str(error), "retry_in": pause})
                connections.close_all()
        connections.close_all()

    def _renew_worker(self) -> None:
        """Say that this worker is alive: while it works as often as leases are renewed, else now and then (W6)."""
        if not self._held and time.monotonic() < self._renew_worker_at:
            return
        if not workers.renew_worker(self._worker_id, using=self._using):
            self._come_back()
        self._renew_worker_at = time.monotonic() + self._renew_worker_every

    def _renew(self) -> None:
        for kind, deliveries in sorted_by_kind(self.held):
            reach("before-renew")
            self._renew_all(kind, deliveries)

    def _renew_all(self, kind: Kind, deliveries: Sequence[AnyDelivery]) -> None:
        verdicts = kind.extend(deliveries, lease=self._lease, using=self._using)
        stale = []
        for delivery, verdict in zip(deliveries, verdicts, strict=True):
            if verdict is SettleVerdict.CANCELING and delivery not in self._canceled:
                self._canceled.add(delivery)
                self._stop_handler(delivery)
            elif verdict is SettleVerdict.STALE and delivery in self._held:
                stale.append(delivery)
        if stale:
            self._stop_lost(stale)

    def _stop_lost(self, stale: Sequence[AnyDelivery]) -> None:
        """Stop the handlers of those claims that were lost; the others were only settled meanwhile."""
        time.sleep(LETTING_GO)
        for delivery in stale:
            if delivery in self._held:
                logger.warning("claim was lost", extra={"run_id": delivery.run_id})
                self._held.discard(delivery)
                self._canceled.add(delivery)  # until its outcome comes, to be dropped
                self._stop_handler(delivery)
