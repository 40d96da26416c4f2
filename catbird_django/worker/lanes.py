"""Which lanes have work, and where in each of them to begin.

A lane is a handler in a queue at a priority. The low-water mark of a lane is the smallest id of the last batch from it:
a claim that begins there does not walk over the dead rows before it. Ids commit out of order, and rows below the mark
come back (released, promoted), so the mark is dropped once a second and whenever a lane gave less than was asked.

To drop the marks is to look at the whole index, and while somewhere an old transaction keeps dead rows in it, that
takes long. So we spend a fifth of our time on it at the most, and go on from the marks that we have meanwhile.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from catbird_django.engine.steps import Claim
from catbird_django.engine.tasks import Lane, LaneHead, LaneRequest
from catbird_django.worker.capacity import Capacities, Capacity, Left

TRUST_MARKS_FOR = 1.0  # seconds
REST_AFTER_LOOK = 4  # times as long as the look took


@dataclass(slots=True)
class KnownLane:
    """A lane with work in it, as far as we know."""

    lane: Lane
    head_id: int
    head_age: float
    """When it was found: of runs of two kinds the ids do not compare."""
    low_id: int = 0
    has_run_short: bool = False
    """Whether it gave less than it was asked for: then others come first."""

    def place_in_line(self) -> tuple[bool, int, float, int]:
        """Highest priority first, then the oldest head."""
        return self.has_run_short, -self.lane.priority, -self.head_age, self.head_id


class Lanes:
    """The lanes that this worker claims from, best first; and the lanes of suspect runs (T7a)."""

    def __init__(self) -> None:
        self._known: dict[Lane, KnownLane] = {}
        self._suspects: list[LaneHead] = []
        self.resting: frozenset[int] = frozenset()
        """The tasks whose circuit breaker is open (T9)."""
        self.rests_for: float | None = None
        """In how many seconds the next task that its breaker keeps back may be tried; None when there is none."""
        self._found_at = float("-inf")
        self._may_find_at = float("-inf")
        self._has_run_short = False

    def __bool__(self) -> bool:
        return bool(self._known or self._suspects)

    def is_stale(self) -> bool:
        """Whether the lanes must be found anew."""
        if not self:
            return True
        is_old = self._has_run_short or time.monotonic() - self._found_at > TRUST_MARKS_FOR
        return is_old and self.may_be_found()

    def may_be_found(self) -> bool:
        """Whether we have spent little enough time on looks to afford another."""
        return time.monotonic() > self._may_find_at

    def found(self, heads: Sequence[LaneHead], *, seconds: float = 0.0) -> None:
        """Take over what a look at the whole index found, in so many seconds; every mark begins anew."""
        due = [head for head in heads if head.rests_for is None]
        self._known = {
            head.lane: KnownLane(head.lane, head.head_id, head.head_age) for head in due if not head.is_suspect
        }
        self._suspects = [head for head in due if head.is_suspect]
        self.resting = frozenset(head.handler_id for head in heads if head.breaker == "open")
        self.rests_for = min((head.rests_for for head in heads if head.rests_for is not None), default=None)
        self._found_at = time.monotonic()
        self._may_find_at = self._found_at + REST_AFTER_LOOK * seconds
        self._has_run_short = False

    def suspects(self, capacities: Capacities) -> list[Lane]:
        """The lanes of suspect runs whose handlers may run one more, best first."""
        ordered = sorted(self._suspects, key=lambda head: (-head.priority, -head.head_age, head.head_id))
        return [head.lane for head in ordered if capacities[head.handler_id].left(head.handler_id) != 0]

    def forget_suspects(self) -> None:
        self._suspects = []

    def requests(
        self, capacities: Capacities, *, ahead: bool = True, without: Collection[int] = ()
    ) -> list[LaneRequest]:
        """What to claim, given the capacity of each handler: highest priority first, then the oldest head.

        Without `ahead`, only what can begin at once; `without` names handlers to leave alone. One that is at its limit
        is not asked for, so that it takes nobody's room (T4b).
        """
        ordered = sorted(self._known.values(), key=KnownLane.place_in_line)
        requests = []
        taken: defaultdict[Capacity, int] = defaultdict(int)
        taken_of_share: defaultdict[Left, int] = defaultdict(int)
        for known in ordered:
            handler_id = known.lane.handler_id
            capacity = capacities[handler_id]
            limit = capacity.room(handler_id, ahead=ahead) - taken[capacity]
            if limit <= 0 or handler_id in without:
                continue
            if (share := capacity.share(handler_id)) is not None:
                limit = min(limit, share.count - taken_of_share[share])
                if limit <= 0:
                    continue
                taken_of_share[share] += limit
            requests.append(LaneRequest(known.lane, known.low_id, limit))
            taken[capacity] += limit
        return requests

    def claimed(self, requests: Sequence[LaneRequest], claims: Sequence[Claim]) -> None:
        """Move the marks on; note when a lane gave less than was asked."""
        ids_of = defaultdict[tuple[str, int, int], list[int]](list)
        for claim in claims:
            ids_of[claim.queue, claim.handler_id, claim.priority].append(claim.run_id)
        for request in requests:
            ids = ids_of[request.lane]
            known = self._known[request.lane]
            if len(ids) < request.limit:
                known.has_run_short = self._has_run_short = True
            if ids:
                known.low_id = known.head_id = min(ids)


def in_order(claims: Sequence[Claim], requests: Sequence[LaneRequest]) -> list[Claim]:
    """The claims, highest priority first, then oldest; those of a kind come together.

    Ids tell the age, but not between kinds: there the lanes do, which were asked for with the oldest first.
    """
    if not claims or type(claims[0]) is type(claims[-1]):
        return sorted(claims, key=lambda claim: (-claim.priority, claim.run_id))
    places: dict[tuple[str, int, int], int] = {request.lane: place for place, request in enumerate(requests)}
    return sorted(
        claims,
        key=lambda claim: (-claim.priority, places[claim.queue, claim.handler_id, claim.priority], claim.run_id),
    )
