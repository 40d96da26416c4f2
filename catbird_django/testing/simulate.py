"""Runs a flow, or a task, to its end in virtual time: what would take days takes as long as its handlers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from catbird_django.statuses import TERMINAL_STATUSES
from catbird_django.testing.assertions import AnyHandle
from catbird_django.testing.clock import turn_clock
from catbird_django.testing.guard import alias_of_tests
from catbird_django.testing.inline import MOST_RUNS, InlineWorker, NeverIdle
from catbird_django.testing.report import Ran

SHORTEST_JUMP = timedelta(milliseconds=1)  # what is late already, the next upkeep does


def simulate(run: AnyHandle[Any], *, within: timedelta | None = None, at_most: int = MOST_RUNS) -> Ran:
    """Work, and turn the clock to the next moment at which something is due, until the run has ended; say what ran.

    Stops before that when time alone brings nothing more, as while a step waits for a signal, or would have to pass
    beyond `within`. Everything else that becomes due is run too. The clock stays turned. Raises what `work_until_idle`
    raises.
    """
    using = alias_of_tests(run.using)
    with InlineWorker(using=using) as worker:
        ran = worker.work(at_most=at_most)
        jumps = 0
        while (jump := _next_jump(run, worker, ran, within)) is not None:
            jumps += 1
            if jumps > at_most:
                raise NeverIdle(f"{run!r} has not ended after the clock was turned {at_most} times; so far: {ran!r}")
            turn_clock(jump, using=using)
            ran = worker.work(replace(ran, passed=ran.passed + jump), at_most=at_most)
    return ran


def _next_jump(run: AnyHandle[Any], worker: InlineWorker, ran: Ran, within: timedelta | None) -> timedelta | None:
    """How far to turn the clock; None when that is of no use any more."""
    if run.status() in TERMINAL_STATUSES or worker.next_due_in is None:
        return None
    jump = max(worker.next_due_in, SHORTEST_JUMP)
    return jump if within is None or ran.passed + jump <= within else None
