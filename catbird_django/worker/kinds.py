"""The kinds of work: what a worker asks of the database for runs of tasks, and for steps of flows.

Claims and deliveries of the two have types of their own, and that alone tells them apart; everything else in a worker
is the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from catbird_django.engine import cancel, flow_cancel, reports, steps, tasks
from catbird_django.engine.steps import AnyDelivery, Claim, StepClaim, StepDelivery
from catbird_django.engine.tasks import Lane, LaneRequest, TaskClaim
from catbird_django.statuses import ReportVerdict, SettleVerdict

Settle = Callable[..., list[SettleVerdict]]
Report = Callable[..., list[ReportVerdict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The calls for one kind of work; they take the same arguments for each."""

    claim: Callable[..., Sequence[Claim]]
    claim_suspect: Callable[..., Claim | None]
    complete: Settle
    fail: Settle
    release: Settle
    cancel: Settle
    extend: Settle
    find_locked: Callable[..., set[int]]
    report: Report
    log: Report


def _claim_suspect_task(lanes: Sequence[Lane], **how_to_claim: Any) -> TaskClaim | None:
    task_ids = sorted({lane.handler_id for lane in lanes})
    queues = sorted({lane.queue for lane in lanes})
    return tasks.claim_suspect_task(task_ids, queues, **how_to_claim)


def _claim_suspect_step(lanes: Sequence[Lane], **how_to_claim: Any) -> StepClaim | None:
    requests = [LaneRequest(lane, low_id=0, limit=1) for lane in lanes]
    return next(iter(steps.claim_steps(requests, suspect=True, **how_to_claim)), None)


TASKS = Kind(
    claim=tasks.claim_tasks,
    claim_suspect=_claim_suspect_task,
    complete=tasks.complete_tasks,
    fail=tasks.fail_tasks,
    release=tasks.release_tasks,
    cancel=cancel.cancel_claimed_tasks,
    extend=tasks.extend_tasks,
    find_locked=tasks.find_locked_tasks,
    report=reports.report_tasks,
    log=reports.log_tasks,
)
STEPS = Kind(
    claim=steps.claim_steps,
    claim_suspect=_claim_suspect_step,
    complete=steps.complete_steps,
    fail=steps.fail_steps,
    release=steps.release_steps,
    cancel=flow_cancel.cancel_claimed_steps,
    extend=steps.extend_steps,
    find_locked=steps.find_locked_steps,
    report=reports.report_steps,
    log=reports.log_steps,
)


def kind_of(delivery: AnyDelivery) -> Kind:
    return STEPS if type(delivery) is StepDelivery else TASKS


def kind_of_lane(lane: Lane) -> Kind:
    return STEPS if lane.handler_id < 0 else TASKS


def sorted_by_kind(deliveries: Iterable[AnyDelivery]) -> Iterator[tuple[Kind, list[AnyDelivery]]]:
    """The deliveries of each kind that is among them, by id: there is one lock order for everyone."""
    of_tasks: list[AnyDelivery] = []
    of_steps: list[AnyDelivery] = []
    for delivery in sorted(deliveries):
        (of_steps if type(delivery) is StepDelivery else of_tasks).append(delivery)
    if of_tasks:
        yield TASKS, of_tasks
    if of_steps:
        yield STEPS, of_steps
