"""Wake → claim what fits → hand over. Sleeps when there is nothing, waits when there is no room."""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta

from django.db import connections

from catbird_django.engine.call import DATABASE_TROUBLE
from catbird_django.engine.steps import Claim
from catbird_django.engine.tasks import Lane, LaneHead, LaneRequest
from catbird_django.engine.workers import Writers
from catbird_django.failpoints import reach
from catbird_django.worker.backoff import Backoff
from catbird_django.worker.bell import Bell
from catbird_django.worker.capacity import Capacities, Meter
from catbird_django.worker.lanes import Lanes, in_order
from catbird_django.worker.patience import Calling

logger = logging.getLogger("catbird.worker")

SHORTEST_PAUSE = 0.01  # seconds between looks, first, while somebody may not have seen that we sleep
WAIT_FOR_UNAWARE = 5.0
PAUSE_RUN_SHORT = 0.005  # seconds before we ask again where there was nothing, while a look at all lanes takes too long
BUSY = 10  # runs claimed within the last moment: then more will come
NAPS = (0.001, 0.002, 0.004, 0.008)  # seconds between looks before a busy worker says that it sleeps
PAUSE_HELD_BACK = 0.1  # seconds before we look for work of others than the handlers that are at their limit


class Look(enum.Enum):
    """What came of a look for work."""

    CLAIMED = enum.auto()
    LOOK_AGAIN = enum.auto()
    NO_ROOM = enum.auto()
    RUN_SHORT = enum.auto()
    HELD_BACK = enum.auto()
    NOTHING = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """What the loop asks of the database and of the rest of the worker."""

    find_lanes: Callable[[], list[LaneHead]]
    claim: Callable[[Sequence[LaneRequest]], list[Claim]]
    claim_suspect: Callable[[Sequence[Lane]], Claim | None]
    is_held: Callable[[Claim], bool]
    announce_sleep: Callable[[], bool]
    find_writers: Callable[[], Writers]
    hand_over: Callable[[Sequence[Claim]], None]
    put_off: Callable[[Collection[int]], None]
    in_doubt: Callable[[], Collection[int]]
    has_settled_enough: Callable[[], bool]
    is_listening: Callable[[], bool]
    is_idle: Callable[[], bool]
    stop_if_asked_to: Callable[[], None]


class Unaware:
    """The transactions that may not have seen our announcement: those that were under way when we made it.

    One of them may have queued work and found us awake. So we do not sleep for long before they have ended and we have
    looked again; nor do we wait for ever: a transaction that takes long asks after its commit.
    """

    def __init__(self) -> None:
        self._before: int | None = None
        self._backoff = Backoff(shortest=SHORTEST_PAUSE)
        self._give_up_at = 0.0

    def __bool__(self) -> bool:
        return self._before is not None

    def note(self, writers: Writers) -> None:
        """Take note of who writes just after the announcement."""
        self._before = writers.next if writers.oldest < writers.next else None
        self._backoff.reset()
        self._give_up_at = time.monotonic() + WAIT_FOR_UNAWARE

    def have_ended(self, writers: Writers) -> bool:
        """Whether none of them is left; then they are forgotten."""
        if self._before is not None and (writers.oldest >= self._before or time.monotonic() > self._give_up_at):
            self._before = None
        return self._before is None

    def next_pause(self) -> float:
        return self._backoff.next_pause()


class ClaimLoop:
    """Claims on a thread and a connection of its own until it is stopped."""

    def __init__(
        self,
        *,
        calls: Calls,
        capacities: Capacities,
        bell: Bell,
        poll_interval: timedelta,
        idle_poll_interval: timedelta,
        calling: Calling = nullcontext,
    ) -> None:
        self._calling = calling
        self._calls = calls
        self._capacities = capacities
        self._bell = bell
        self._poll_interval = poll_interval.total_seconds()
        self._idle_poll_interval = idle_poll_interval.total_seconds()
        self._lanes = Lanes()
        self._suspect: Claim | None = None
        self._must_find = False
        self._expects_more = False
        self._has_announced = False
        self._has_run_short = False
        self._recent = Meter(most=BUSY)
        self._naps: Iterator[float] = iter(())
        self._unaware = Unaware()
        self._stopping = False
        self._backoff = Backoff()
        self._thread = threading.Thread(target=self._run, name="catbird-claims", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether it claims, or was told not to; not whether its thread, told so, has ended yet."""
        return self._stopping or self._thread.is_alive()

    def notified(self) -> None:
        """Somebody has work for us, and has taken our announcement away."""
        self._must_find = True
        self._has_announced = False
        self._bell.ring()

    def claim_no_more(self) -> None:
        """Claim nothing more after what is under way. Does not wait for that."""
        self._stopping = True
        self._bell.ring()

    def expect_more(self) -> None:
        """Look at all lanes again, as soon as that can be afforded: there may be more of them."""
        self._expects_more = True
        self._bell.ring()

    def look_anew(self) -> None:
        """Forget what we know of the lanes: it may not be true any more."""
        self._must_find = True
        self._bell.ring()

    def stop(self) -> None:
        """Claim nothing more; wait until a claim that is under way has been handed over, a few seconds at most."""
        self.claim_no_more()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        with self._calling():
            self._loop()

    def _loop(self) -> None:
        while not self._stopping:
            rings = self._bell.rings()  # before the look: what rings during it is not slept over
            try:
                self._round(rings)
                self._backoff.reset()
            except DATABASE_TROUBLE as error:
                self._wait_for_database(error, rings)
        connections.close_all()

    def _round(self, rings: int) -> None:
        was_idle = self._calls.is_idle()
        if not (self._capacities.is_low() and self._calls.has_settled_enough()):
            self._bell.wait(after=rings, timeout=self._poll_interval)
            return
        match self._look():
            case Look.CLAIMED:
                self._has_announced = False
                self._has_run_short = False
                self._naps = iter(NAPS)
            case Look.RUN_SHORT:
                self._bell.wait(after=rings, timeout=PAUSE_RUN_SHORT)
            case Look.NO_ROOM:
                self._bell.wait(after=rings, timeout=self._poll_interval)
            case Look.HELD_BACK:
                if not self._bell.wait(after=rings, timeout=PAUSE_HELD_BACK):
                    self._must_find = True
            case Look.NOTHING:
                self._sleep(rings, was_idle=was_idle)

    def _look(self) -> Look:
        """Claim what fits."""
        is_fresh = self._find_lanes()
        if not self._lanes:
            return Look.NOTHING
        suspects = self._lanes.suspects(self._capacities)
        if suspects and self._claim_suspect(suspects):
            return Look.CLAIMED
        # Nothing waits beside a suspect run, nor is there any room for one while something waits (T7a).
        is_alone = bool(suspects) or self._holds_suspect()
        requests = self._lanes.requests(self._capacities, ahead=not is_alone, without=self._calls.in_doubt())
        if not requests:
            return self._held_back(is_fresh=is_fresh)
        claims = self._calls.claim(requests)
        self._lanes.claimed(requests, claims)
        if claims:
            self._recent.add(time.monotonic(), len(claims))
            reach("after-claim")
            self._calls.hand_over(in_order(claims, requests))
            return Look.CLAIMED
        # Lanes that we only remembered may be empty while others are not: look again before giving up.
        if is_fresh:
            return Look.NOTHING
        # A look at all of them may take long; in a moment there may be more where there was some. But only once: who
        # has nothing else to do can as well look.
        has_run_short, self._has_run_short = self._has_run_short, True
        if not has_run_short and not self._lanes.is_stale():
            return Look.RUN_SHORT
        self._must_find = True
        return Look.LOOK_AGAIN

    def _find_lanes(self) -> bool:
        """Find the lanes, unless we know them well enough; say whether they are fresh."""
        is_due = self._lanes.is_stale() or (self._expects_more and self._lanes.may_be_found())
        if not (self._must_find or is_due):
            return False
        # Before the call: whoever notifies us during it may not be seen by it.
        self._must_find = self._expects_more = False
        began = time.monotonic()
        heads = self._calls.find_lanes()
        self._lanes.found(heads, seconds=time.monotonic() - began)
        if self._lanes.resting:
            self._calls.put_off(self._lanes.resting)
        return True

    def _held_back(self, *, is_fresh: bool) -> Look:
        """What it means that there is work, and none that we may take: its handlers are at their limit.

        While slots are free, work of other handlers must find us as if there were nothing: asleep, to be woken. But
        not at once: mostly some run is about to finish and to make room.
        """
        if not self._capacities.has_free_slot():
            return Look.NO_ROOM
        return Look.NOTHING if is_fresh or self._has_announced else Look.HELD_BACK

    def _claim_suspect(self, lanes: Sequence[Lane]) -> bool:
        """Claim one suspect run, if we hold none and nothing waits: it may kill this process (T7a)."""
        if self._holds_suspect() or self._capacities.has_waiting():
            return False
        lanes = [lane for lane in lanes if self._capacities[lane.handler_id].has_free_slot()]
        if not lanes:
            return False
        self._suspect = self._calls.claim_suspect(lanes)
        if self._suspect is None:
            self._lanes.forget_suspects()  # others were faster
            return False
        logger.warning("claimed alone", extra={"run_id": self._suspect.run_id, "lost_count": self._suspect.lost_count})
        self._calls.hand_over([self._suspect])
        return True

    def _holds_suspect(self) -> bool:
        if self._suspect is not None and not self._calls.is_held(self._suspect):
            self._suspect = None
        return self._suspect is not None

    def _sleep(self, rings: int, *, was_idle: bool) -> None:
        """Wait to be woken, or for the next poll."""
        if self._nap(rings):
            return
        if self._calls.is_listening() and not self._has_announced and self._announce():
            self._must_find = True
            return  # and look once more: what is queued after that look finds us asleep and wakes us
        if self._unaware and self._unaware.have_ended(self._calls.find_writers()):
            self._must_find = True
            return  # and look once more: what they have queued can be seen now
        if was_idle:
            self._calls.stop_if_asked_to()
        self._bell.wait(after=rings, timeout=self._pause())

    def _nap(self, rings: int) -> bool:
        """Look again in a moment, if we have been busy: to wake us would cost producers more than looking costs us."""
        if self._has_announced or self._recent.count(time.monotonic()) < BUSY:
            return False
        pause = next(self._naps, None)
        if pause is None:
            return False
        self._bell.wait(after=rings, timeout=pause)
        self._must_find = True
        return True

    def _announce(self) -> bool:
        # Before the call: a notification may come while it returns, and takes the announcement away again.
        self._has_announced = True
        if not self._calls.announce_sleep():
            self._has_announced = False
            return False
        self._unaware.note(self._calls.find_writers())
        return True

    def _pause(self) -> float:
        """How long until the next look, if nobody wakes us."""
        rest = self._lanes.rests_for
        pause = self._usual_pause()
        return pause if rest is None else min(pause, max(rest, SHORTEST_PAUSE))

    def _usual_pause(self) -> float:
        if not (self._calls.is_listening() and self._has_announced):
            return self._poll_interval
        if self._unaware:
            return min(self._unaware.next_pause(), self._poll_interval)
        return self._idle_poll_interval

    def _wait_for_database(self, error: Exception, rings: int) -> None:
        pause = self._backoff.next_pause()
        logger.warning("cannot claim, trying again", extra={"error": str(error), "retry_in": pause})
        connections.close_all()
        self._has_announced = False
        self._bell.wait(after=rings, timeout=pause)
