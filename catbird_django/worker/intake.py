"""Where a worker's claims come from: the lanes of its tasks, of its steps, and of the items of its maps."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from catbird_django.engine import lanes as both
from catbird_django.engine import steps, tasks
from catbird_django.engine.call import DATABASE_TROUBLE
from catbird_django.engine.steps import Claim
from catbird_django.engine.tasks import Lane, LaneHead, LaneRequest
from catbird_django.worker.capacity import Capacities
from catbird_django.worker.repertoire import Repertoire

logger = logging.getLogger("catbird.worker")


class Intake:
    """Finds and claims runs of every kind that there are repertoire for."""

    def __init__(
        self,
        repertoire: Repertoire,
        *,
        capacities: Capacities,
        queues: Sequence[str] | None,
        worker_id: int,
        lease: timedelta,
        all_events: bool,
        using: str,
    ) -> None:
        self._repertoire = repertoire
        self._capacities = capacities
        self._queues = queues
        self._using = using
        self._how_to_claim: dict[str, Any] = {
            "worker_id": worker_id,
            "lease": lease,
            "all_events": all_events,
            "using": using,
        }

    def find_lanes(self) -> list[LaneHead]:
        """Find the lanes that have due runs, in one call: an idle worker does little else (W6)."""
        self._repertoire.find_new_steps(added=self._capacities.add)
        task_ids, step_ids = self._repertoire.task_ids, self._repertoire.step_ids
        if not step_ids:
            return tasks.find_task_lanes(task_ids, self._queues, using=self._using)
        if not task_ids:
            return steps.find_step_lanes(step_ids, self._queues, using=self._using)
        return both.find_lanes(task_ids, step_ids, self._queues, using=self._using)

    def claim(self, requests: Sequence[LaneRequest]) -> list[Claim]:
        """Claim from these lanes, in one call for each kind."""
        claims: list[Claim] = []
        kind_of = self._repertoire.kind_of
        for kind in dict.fromkeys(kind_of(request.lane.handler_id) for request in requests):
            share = [request for request in requests if kind_of(request.lane.handler_id) is kind]
            try:
                claims += kind.claim(share, **self._how_to_claim)
            except DATABASE_TROUBLE as error:
                if not claims:
                    raise
                # What was claimed before is ours, and nobody else will run it before its lease is over.
                logger.warning("cannot claim everything", extra={"error": str(error)})
        return claims

    def claim_suspect(self, lanes: Sequence[Lane]) -> Claim | None:
        """Claim one suspect run of these lanes, the best first (T7a)."""
        kind_of = self._repertoire.kind_of
        for kind in dict.fromkeys(kind_of(lane.handler_id) for lane in lanes):
            share = [lane for lane in lanes if kind_of(lane.handler_id) is kind]
            claim = kind.claim_suspect(share, **self._how_to_claim)
            if claim is not None:
                return claim
        return None
