"""Wake → claim what fits → hand over. Sleeps when there is nothing, waits when there is no room."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db import connections

from catbird_django.engine.call import DATABASE_TROUBLE
from catbird_django.engine.tasks import LaneHead, LaneRequest, TaskClaim
from catbird_django.worker.capacity import Capacity
from catbird_django.worker.lanes import Lanes
from catbird_django.worker.wakeups import Wakeups

logger = logging.getLogger("catbird.worker")

LONGEST_PAUSE = 5.0  # seconds between attempts while the database does not answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """What the loop asks of the database and of the rest of the worker."""

    find_lanes: Callable[[], list[LaneHead]]
    claim: Callable[[Sequence[LaneRequest]], list[TaskClaim]]
    announce_sleep: Callable[[], None]
    hand_over: Callable[[Sequence[TaskClaim]], None]
    may_claim: Callable[[], bool]
    """Back-pressure: False while too many finished results wait to be settled."""
    idle: Callable[[], None]
    """Called each time that there was nothing to claim."""


class ClaimLoop:
    """Claims on a thread and a connection of its own until it is stopped."""

    def __init__(
        self,
        *,
        calls: Calls,
        capacity: Capacity,
        wakeups: Wakeups,
        poll_interval: timedelta,
        idle_poll_interval: timedelta,
    ) -> None:
        self._calls = calls
        self._capacity = capacity
        self._wakeups = wakeups
        self._poll_interval = poll_interval.total_seconds()
        self._idle_poll_interval = idle_poll_interval.total_seconds()
        self._lanes = Lanes()
        self._has_announced = False
        self._stopping = False
        self._pause = 0.1
        self._thread = threading.Thread(target=self._run, name="catbird-claims", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Claim nothing more; wait until a claim that is under way has been handed over, a few seconds at most."""
        self._stopping = True
        self._wakeups.event.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._round()
                self._pause = 0.1
            except DATABASE_TROUBLE as error:
                self._wait_for_database(error)
        connections.close_all()

    def _round(self) -> None:
        self._wakeups.event.clear()
        if not (self._capacity.is_low() and self._calls.may_claim()):
            self._wakeups.event.wait(self._poll_interval)
        elif self._claim_some():
            self._has_announced = False
        else:
            self._sleep()

    def _claim_some(self) -> bool:
        """Claim what fits; False when there is nothing to claim."""
        looked = self._lanes.is_stale()
        if looked:
            self._lanes.found(self._calls.find_lanes())
        requests = self._lanes.requests(self._capacity.room)
        if not requests:
            return False
        claims = self._calls.claim(requests)
        self._lanes.claimed(requests, claims)
        if claims:
            self._calls.hand_over(sorted(claims, key=lambda claim: (-claim.priority, claim.run_id)))
        # Lanes that we only remembered may be empty while others are not: look again before giving up.
        return bool(claims) or not looked

    def _sleep(self) -> None:
        """Wait to be woken, or for the next poll."""
        if self._wakeups.is_listening and not self._has_announced:
            # Announce first and look once more: what is queued after this look finds us asleep and wakes us.
            self._calls.announce_sleep()
            self._has_announced = True
            return
        self._calls.idle()
        interval = self._idle_poll_interval if self._wakeups.is_listening else self._poll_interval
        if self._wakeups.event.wait(interval):
            self._has_announced = False  # whoever woke us has taken the announcement away

    def _wait_for_database(self, error: Exception) -> None:
        logger.warning("cannot claim, trying again", extra={"error": str(error), "retry_in": self._pause})
        connections.close_all()
        self._has_announced = False
        self._wakeups.event.wait(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
