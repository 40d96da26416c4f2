"""Which lanes have work, and where in each of them to begin.

A lane is a task in a queue at a priority. The low-water mark of a lane is the smallest id of the last batch from it: a
claim that begins there does not walk over the dead rows before it. Ids commit out of order, and rows below the mark
come back (released, promoted), so the mark is dropped once a second and whenever a lane gave less than was asked.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from catbird_django.engine.tasks import Lane, LaneHead, LaneRequest, TaskClaim
from catbird_django.worker.capacity import Capacities, Capacity

TRUST_MARKS_FOR = 1.0  # seconds


@dataclass(slots=True)
class KnownLane:
    """A lane with work in it, as far as we know."""

    lane: Lane
    head_id: int
    low_id: int = 0


class Lanes:
    """The lanes that this worker claims from, best first."""

    def __init__(self) -> None:
        self._known: dict[Lane, KnownLane] = {}
        self._found_at = float("-inf")

    def __bool__(self) -> bool:
        return bool(self._known)

    def is_stale(self) -> bool:
        """Whether the lanes must be found anew."""
        return not self._known or time.monotonic() - self._found_at > TRUST_MARKS_FOR

    def found(self, heads: Iterable[LaneHead]) -> None:
        """Take over what a look at the whole index found; every mark begins anew."""
        self._known = {head.lane: KnownLane(head.lane, head.head_id) for head in heads}
        self._found_at = time.monotonic()

    def requests(self, capacities: Capacities) -> list[LaneRequest]:
        """What to claim, given the capacity of each task: highest priority first, then the oldest head."""
        ordered = sorted(self._known.values(), key=lambda known: (-known.lane.priority, known.head_id))
        requests = []
        taken: Counter[Capacity] = Counter()
        for known in ordered:
            capacity = capacities[known.lane.task_id]
            limit = capacity.room(known.lane.task_id) - taken[capacity]
            if limit > 0:
                requests.append(LaneRequest(known.lane, known.low_id, limit))
                taken[capacity] += limit
        return requests

    def claimed(self, requests: Sequence[LaneRequest], claims: Sequence[TaskClaim]) -> None:
        """Move the marks on; forget the lanes that gave less than was asked."""
        ids_of = defaultdict[tuple[str, int, int], list[int]](list)
        for claim in claims:
            ids_of[claim.queue, claim.task_id, claim.priority].append(claim.run_id)
        for request in requests:
            ids = ids_of[request.lane]
            if len(ids) < request.limit:
                self._known.pop(request.lane, None)
                self._found_at = float("-inf")
            else:
                known = self._known[request.lane]
                known.low_id = known.head_id = min(ids)
