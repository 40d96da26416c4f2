"""Outcomes whose runs somebody else has locked: they wait here, and nobody waits for them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

from catbird_django.engine.steps import AnyDelivery
from catbird_django.worker.backoff import Backoff
from catbird_django.worker.kinds import sorted_by_kind
from catbird_django.worker.outcome import Outcome

logger = logging.getLogger("catbird.worker")

LONGEST_PAUSE = 1.0  # seconds between looks at whether the locks are gone


def find_locked(deliveries: Iterable[AnyDelivery], *, using: str) -> set[AnyDelivery]:
    """Find those of these deliveries whose runs others have locked just now."""
    locked: set[AnyDelivery] = set()
    for kind, alike in sorted_by_kind(deliveries):
        run_ids = kind.find_locked([delivery.run_id for delivery in alike], using=using)
        locked.update(delivery for delivery in alike if delivery.run_id in run_ids)
    return locked


class SetAside:
    """Keeps outcomes until the locks on their runs are gone. Used by one thread, and counted by others."""

    def __init__(self, *, using: str) -> None:
        self._using = using
        self._outcomes: dict[AnyDelivery, Outcome] = {}
        self._backoff = Backoff(longest=LONGEST_PAUSE)
        self._look_at = 0.0

    def __len__(self) -> int:
        return len(self._outcomes)

    @property
    def deliveries(self) -> frozenset[AnyDelivery]:
        return frozenset(self._outcomes)

    def add(self, outcomes: Sequence[Outcome]) -> None:
        if not outcomes:
            return
        run_ids = [outcome.claim.run_id for outcome in outcomes]
        logger.warning("runs are locked by somebody else, their results wait", extra={"run_ids": run_ids})
        if not self._outcomes:
            self._backoff.reset()
            self._look_at = time.monotonic() + self._backoff.next_pause()
        self._outcomes.update({outcome.claim.delivery: outcome for outcome in outcomes})

    def next_look_in(self) -> float | None:
        """How many seconds until it is worth looking; None while there is nothing here."""
        return max(0.0, self._look_at - time.monotonic()) if self._outcomes else None

    def find_free(self) -> list[Outcome]:
        """Find the outcomes whose runs are no longer locked, if it is time to look; sorted by run."""
        if self.next_look_in() != 0.0:
            return []
        self._look_at = time.monotonic() + self._backoff.next_pause()
        locked = find_locked(self._outcomes, using=self._using)
        free = [outcome for delivery, outcome in self._outcomes.items() if delivery not in locked]
        return sorted(free, key=lambda outcome: outcome.claim.run_id)

    def take(self, outcomes: Sequence[Outcome]) -> None:
        """Keep these no longer: they are being settled."""
        for outcome in outcomes:
            del self._outcomes[outcome.claim.delivery]
