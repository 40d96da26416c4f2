"""Which lanes have work, and where in each of them to begin.

A lane is a task in a queue at a priority. The low-water mark of a lane is the smallest id of the last batch from it: a
claim that begins there does not walk over the dead rows before it. Ids commit out of order, and rows below the mark
come back (released, promoted), so the mark is dropped once a second and whenever a lane gave less than was asked.

To drop the marks is to look at the whole index, and while somewhere an old transaction keeps dead rows in it, that
takes long. So we spend a fifth of our time on it at the most, and go on from the marks that we have meanwhile.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from catbird_django.engine.tasks import Lane, LaneHead, LaneRequest, TaskClaim
from catbird_django.worker.capacity import Capacities, Capacity

TRUST_MARKS_FOR = 1.0  # seconds
REST_AFTER_LOOK = 4  # times as long as the look took


@dataclass(slots=True)
class KnownLane:
    """A lane with work in it, as far as we know."""

    lane: Lane
    head_id: int
    low_id: int = 0
    has_run_short: bool = False
    """Whether it gave less than it was asked for: then others come first."""

    def place_in_line(self) -> tuple[bool, int, int]:
        """Highest priority first, then the oldest head."""
        return self.has_run_short, -self.lane.priority, self.head_id


class Lanes:
    """The lanes that this worker claims from, best first; and the tasks that have suspect runs (T7a)."""

    def __init__(self) -> None:
        self._known: dict[Lane, KnownLane] = {}
        self._suspects: set[int] = set()
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
        now = time.monotonic()
        return now > self._may_find_at and (self._has_run_short or now - self._found_at > TRUST_MARKS_FOR)

    def found(self, heads: Sequence[LaneHead], *, seconds: float = 0.0) -> None:
        """Take over what a look at the whole index found, in so many seconds; every mark begins anew."""
        due = [head for head in heads if head.rests_for is None]
        self._known = {head.lane: KnownLane(head.lane, head.head_id) for head in due if not head.is_suspect}
        self._suspects = {head.task_id for head in due if head.is_suspect}
        self.resting = frozenset(head.task_id for head in heads if head.breaker == "open")
        self.rests_for = min((head.rests_for for head in heads if head.rests_for is not None), default=None)
        self._found_at = time.monotonic()
        self._may_find_at = self._found_at + REST_AFTER_LOOK * seconds
        self._has_run_short = False

    def suspects(self, capacities: Capacities) -> list[int]:
        """The tasks that have suspect runs, and may run one more."""
        return [task_id for task_id in self._suspects if capacities[task_id].left(task_id) != 0]

    def forget_suspects(self) -> None:
        self._suspects = set()

    def requests(
        self, capacities: Capacities, *, ahead: bool = True, without: Collection[int] = ()
    ) -> list[LaneRequest]:
        """What to claim, given the capacity of each task: highest priority first, then the oldest head.

        Without `ahead`, only what can begin at once; `without` names tasks to leave alone. A task that is at its limit
        is not asked for, so that it takes nobody's room (T4b).
        """
        ordered = sorted(self._known.values(), key=KnownLane.place_in_line)
        requests = []
        taken: defaultdict[Capacity, int] = defaultdict(int)
        taken_of_task: defaultdict[int, int] = defaultdict(int)
        for known in ordered:
            task_id = known.lane.task_id
            capacity = capacities[task_id]
            limit = capacity.room(task_id, ahead=ahead) - taken[capacity]
            if limit <= 0 or task_id in without:
                continue
            if (left := capacity.left(task_id)) is not None:
                limit = min(limit, left - taken_of_task[task_id])
                if limit <= 0:
                    continue
                taken_of_task[task_id] += limit
            requests.append(LaneRequest(known.lane, known.low_id, limit))
            taken[capacity] += limit
        return requests

    def claimed(self, requests: Sequence[LaneRequest], claims: Sequence[TaskClaim]) -> None:
        """Move the marks on; note when a lane gave less than was asked."""
        ids_of = defaultdict[tuple[str, int, int], list[int]](list)
        for claim in claims:
            ids_of[claim.queue, claim.task_id, claim.priority].append(claim.run_id)
        for request in requests:
            ids = ids_of[request.lane]
            known = self._known[request.lane]
            if len(ids) < request.limit:
                known.has_run_short = self._has_run_short = True
            if ids:
                known.low_id = known.head_id = min(ids)
