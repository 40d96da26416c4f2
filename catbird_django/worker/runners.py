"""Who runs claims: threads for sync and isolated handlers, a loop for async ones; and how much each may hold."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

from catbird_django.engine.steps import AnyDelivery, Claim
from catbird_django.worker.event_loop import LoopRunner
from catbird_django.worker.executor import Executor
from catbird_django.worker.outcome import Outcome
from catbird_django.worker.repertoire import Repertoire
from catbird_django.worker.threads import ThreadRunner


class Runners:
    """Gives each claim to the runner of its handler, and counts what they hold."""

    def __init__(
        self,
        repertoire: Repertoire,
        *,
        concurrency: int,
        prefetch: int,
        executor: Executor,
        finish: Callable[[Outcome], None],
    ) -> None:
        self._handlers = repertoire.by_id
        self._threads = ThreadRunner(concurrency, run=executor.run, finish=finish)
        self._event_loop = LoopRunner(concurrency, run=executor.run_async, finish=finish)
        self.capacities = repertoire.capacities(slots=concurrency, prefetch=prefetch)

    @property
    def in_flight(self) -> int:
        """How many claims they hold: begun or waiting, and not finished."""
        return self.capacities.in_flight

    def start(self) -> None:
        self._threads.start()
        self._event_loop.start()

    def is_alive(self) -> bool:
        return self._threads.is_alive() and self._event_loop.is_alive()

    def stop(self) -> None:
        """Begin nothing more. Does not wait for handlers."""
        self._threads.stop()
        self._event_loop.stop()

    def submit(self, claims: Sequence[Claim]) -> None:
        """Give claims to whoever runs them."""
        on_threads = [claim for claim in claims if not self._handlers[claim.handler_id].runs_on_loop]
        on_loop = [claim for claim in claims if self._handlers[claim.handler_id].runs_on_loop]
        for share, runner in ((on_threads, self._threads), (on_loop, self._event_loop)):
            if share:
                self.capacities[share[0].handler_id].take([claim.handler_id for claim in share])
                runner.submit(share)

    def finished(self, handler_id: int) -> bool:
        """Count one claim less; say whether it is worth claiming again."""
        return self.capacities[handler_id].give_back(handler_id, finished=True)

    def take_back(self, handler_ids: Collection[int] | None = None) -> list[Claim]:
        """Take back the claims that no handler has begun: all of them, or those of some handlers."""
        taken: list[Claim] = []
        for runner in (self._threads, self._event_loop):
            waiting = runner.take_back()
            wanted = [claim for claim in waiting if handler_ids is None or claim.handler_id in handler_ids]
            if rest := [claim for claim in waiting if handler_ids is not None and claim.handler_id not in handler_ids]:
                runner.submit(rest)
            taken += wanted
        for claim in taken:
            self.capacities[claim.handler_id].give_back(claim.handler_id, finished=False)
        return taken

    def cancel(self, delivery: AnyDelivery) -> None:
        """Cancel a handler on the loop; the others look, or are looked after, themselves."""
        self._event_loop.cancel(delivery)

    def replace(self, abandoned: threading.Thread) -> None:
        """Give the slot of a thread that will not come back to a new one."""
        self._threads.replace(abandoned)
