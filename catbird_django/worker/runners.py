"""Who runs claims: threads for sync and isolated handlers, a loop for async ones; and how much each may hold."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from catbird_django.engine.tasks import Delivery, TaskClaim
from catbird_django.worker.capacity import Capacities, Capacity, TaskLimits
from catbird_django.worker.event_loop import LoopRunner
from catbird_django.worker.executor import Executor
from catbird_django.worker.handlers import TaskHandler
from catbird_django.worker.outcome import Outcome
from catbird_django.worker.threads import ThreadRunner


class Runners:
    """Gives each claim to the runner of its handler, and counts what they hold."""

    def __init__(
        self,
        handlers: Mapping[int, TaskHandler],
        *,
        concurrency: int,
        prefetch: int,
        executor: Executor,
        finish: Callable[[Outcome], None],
    ) -> None:
        self._handlers = handlers
        self._threads = ThreadRunner(concurrency, run=executor.run, finish=finish)
        self._event_loop = LoopRunner(concurrency, run=executor.run_async, finish=finish)
        self.capacities = _capacities(handlers, concurrency=concurrency, prefetch=prefetch)

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

    def submit(self, claims: Sequence[TaskClaim]) -> None:
        """Give claims to whoever runs them."""
        on_threads = [claim for claim in claims if not self._handlers[claim.task_id].runs_on_loop]
        on_loop = [claim for claim in claims if self._handlers[claim.task_id].runs_on_loop]
        for share, runner in ((on_threads, self._threads), (on_loop, self._event_loop)):
            if share:
                self.capacities[share[0].task_id].take([claim.task_id for claim in share])
                runner.submit(share)

    def finished(self, task_id: int) -> bool:
        """Count one claim less; say whether it is worth claiming again."""
        return self.capacities[task_id].give_back(task_id, finished=True)

    def take_back(self, task_ids: Collection[int] | None = None) -> list[TaskClaim]:
        """Take back the claims that no handler has begun: all of them, or those of some tasks."""
        taken: list[TaskClaim] = []
        for runner in (self._threads, self._event_loop):
            waiting = runner.take_back()
            wanted = [claim for claim in waiting if task_ids is None or claim.task_id in task_ids]
            if rest := [claim for claim in waiting if task_ids is not None and claim.task_id not in task_ids]:
                runner.submit(rest)
            taken += wanted
        for claim in taken:
            self.capacities[claim.task_id].give_back(claim.task_id, finished=False)
        return taken

    def cancel(self, delivery: Delivery) -> None:
        """Cancel a handler on the loop; the others look, or are looked after, themselves."""
        self._event_loop.cancel(delivery)

    def replace(self, abandoned: threading.Thread) -> None:
        """Give the slot of a thread that will not come back to a new one."""
        self._threads.replace(abandoned)


def _capacities(handlers: Mapping[int, TaskHandler], *, concurrency: int, prefetch: int) -> Capacities:
    limits = {
        task_id: TaskLimits(concurrency=handler.options.concurrency, batch_size=handler.options.batch_size)
        for task_id, handler in handlers.items()
    }
    on_threads, on_loop = (Capacity(concurrency, prefetch=prefetch, limits=limits) for _ in range(2))
    return Capacities(
        {task_id: on_loop if handler.runs_on_loop else on_threads for task_id, handler in handlers.items()}
    )
