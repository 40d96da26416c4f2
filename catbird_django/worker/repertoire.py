"""What a worker can run: its handlers, by the numbers that claims name them by."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from catbird_django.client.registration import register_flows, register_tasks
from catbird_django.definitions.registry import Registry
from catbird_django.engine.items import read_items
from catbird_django.engine.steps import StepKey, StoredStep, find_steps
from catbird_django.worker.capacity import Capacities, Capacity, HandlerLimits
from catbird_django.worker.handlers import Handler, build_handlers, runnable_tasks
from catbird_django.worker.kinds import ITEMS, STEPS, TASKS, Kind
from catbird_django.worker.step_handlers import build_step_handlers, runnable_flows

Adapt = Callable[[Handler], Handler]

FIND_STEPS_EVERY = 120.0  # seconds: others may register versions of a flow with steps that we know, and hardly ever do


class Repertoire:
    """The handlers of tasks and of steps.

    A step has a number for each stored version of its flow in which it is called in the same way (F21).
    """

    def __init__(
        self,
        tasks: Mapping[int, Handler],
        steps: Mapping[StepKey, Handler],
        *,
        using: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.by_id: dict[int, Handler] = dict(tasks)
        self.task_ids = list(tasks)
        self.step_ids: list[int] = []
        self._steps = steps
        self._first_of: dict[StepKey, int] = {}
        self._others: dict[int, int] = {}  # the numbers that a handler has beside its first, and which that is
        self._using = using
        self._clock = clock
        self._find_at = clock()
        self.find_new_steps()

    @property
    def names(self) -> list[str]:
        """The names of tasks, and of steps as flow.step."""
        return sorted(handler.name for handler in self._each_once().values())

    @property
    def allowed_failures(self) -> dict[int, int]:
        """The tasks with a circuit breaker, and after how many failures in a row it opens."""
        breakers = {task_id: self.by_id[task_id].options.breaker for task_id in self.task_ids}
        return {task_id: breaker.failures for task_id, breaker in breakers.items() if breaker is not None}

    def kind_of(self, handler_id: int) -> Kind:
        """What kind of work a handler does: a map is known by its items."""
        if handler_id > 0:
            return TASKS
        return ITEMS if self.by_id[handler_id].is_map else STEPS

    def capacities(self, *, slots: int, prefetch: int) -> Capacities:
        """What a worker with so many slots may hold of each: async handlers take no slots of sync ones."""
        handlers = self._each_once()
        limits = {
            number: HandlerLimits(concurrency=handler.options.concurrency, batch_size=handler.options.batch_size)
            for number, handler in handlers.items()
        }
        on_threads, on_loop = (Capacity(slots, prefetch=prefetch, limits=limits) for _ in range(2))
        capacities = Capacities(
            {number: on_loop if handler.runs_on_loop else on_threads for number, handler in handlers.items()}
        )
        for number, first in self._others.items():
            capacities.add(number, like=first)
        return capacities

    def find_new_steps(self, added: Callable[..., None] | None = None) -> None:
        """Find versions of our steps that were registered since we looked the last time, a while ago.

        `added` is called with each new number and, as `like`, the first one of its handler.
        """
        if not self._steps or self._clock() < self._find_at:
            return
        self._find_at = self._clock() + FIND_STEPS_EVERY
        found = find_steps(list(self._steps), using=self._using)
        inline = defaultdict[int, set[str]](set)
        for stored in found:
            if stored.is_inline:
                inline[stored.flow_id].add(stored.key.step)
        for stored in found:
            if -stored.id not in self.by_id:
                self._add_step(stored, inline[stored.flow_id], added)

    def _add_step(self, stored: StoredStep, inline: Collection[str], added: Callable[..., None] | None) -> None:
        """Enter a step, with those inline steps of its version that we know."""
        number = -stored.id
        first = self._first_of.setdefault(stored.key, number)
        if number != first:
            self._others[number] = first
            if added is not None:
                added(number, like=first)
        self.by_id[number] = self._steps[stored.key].knowing(inline)
        self.step_ids.append(stored.id)  # last: what is looked for must be known

    def _each_once(self) -> dict[int, Handler]:
        return {number: handler for number, handler in self.by_id.items() if number not in self._others}


def learn(
    registry: Registry,
    *,
    tasks: Sequence[str] | None,
    flows: Sequence[str] | None,
    using: str,
    adapt: Adapt = lambda handler: handler,
) -> Repertoire:
    """Make known to the database what there is to run, or the named ones of it; raise what is wrong with it before.

    Who names tasks only wants no flows, and the other way round. `adapt` may put another handler in the place of each.
    """
    names_some = tasks is not None or flows is not None
    task_definitions = runnable_tasks(registry, () if names_some and tasks is None else tasks)
    flow_definitions = runnable_flows(registry, () if names_some and flows is None else flows)
    task_ids = register_tasks(task_definitions, using=using)
    register_flows(flow_definitions, using=using)
    task_handlers = build_handlers(task_definitions, task_ids)
    step_handlers = build_step_handlers(flow_definitions, read_items=partial(read_items, using=using))
    return Repertoire(
        {task_id: adapt(handler) for task_id, handler in task_handlers.items()},
        {key: adapt(handler) for key, handler in step_handlers.items()},
        using=using,
    )
