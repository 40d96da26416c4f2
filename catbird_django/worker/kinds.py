"""The kinds of work: what a worker asks of the database for runs of tasks, for steps of flows, and for items of maps.

Claims and deliveries of each have types of their own, and that alone tells them apart; everything else in a worker is
the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from catbird_django.engine import cancel, flow_cancel, items, reports, steps, tasks
from catbird_django.engine.items import ItemDelivery
from catbird_django.engine.steps import AnyDelivery, Claim, StepDelivery
from catbird_django.engine.tasks import Lane, LaneRequest, TaskClaim
from catbird_django.statuses import ReportVerdict, SettleVerdict

Settle = Callable[..., list[SettleVerdict]]
Report = Callable[..., list[ReportVerdict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The calls for one kind of work; but for what only flows know, they take the same arguments for each."""

    claim: Callable[..., Sequence[Claim]]
    claim_suspect: Callable[..., Claim | None]
    complete: Settle
    complete_early: Settle | None = None
    """For work of flows."""
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


def _claim_suspect_with(claim: Callable[..., Sequence[Claim]]) -> Callable[..., Claim | None]:
    def claim_suspect(lanes: Sequence[Lane], **how_to_claim: Any) -> Claim | None:
        requests = [LaneRequest(lane, low_id=0, limit=1) for lane in lanes]
        return next(iter(claim(requests, suspect=True, **how_to_claim)), None)

    return claim_suspect


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
    claim_suspect=_claim_suspect_with(steps.claim_steps),
    complete=steps.complete_steps,
    complete_early=steps.complete_steps_early,
    fail=steps.fail_steps,
    release=steps.release_steps,
    cancel=flow_cancel.cancel_claimed_steps,
    extend=steps.extend_steps,
    find_locked=steps.find_locked_steps,
    report=reports.report_steps,
    log=reports.log_steps,
)

ITEMS = Kind(
    claim=items.claim_items,
    claim_suspect=_claim_suspect_with(items.claim_items),
    complete=items.complete_items,
    complete_early=items.complete_items_early,
    fail=items.fail_items,
    release=items.release_items,
    cancel=flow_cancel.cancel_claimed_items,
    extend=items.extend_items,
    find_locked=items.find_locked_items,
    report=reports.report_items,
    log=reports.log_items,
)


def kind_of(delivery: AnyDelivery) -> Kind:
    if type(delivery) is StepDelivery:
        return STEPS
    return ITEMS if type(delivery) is ItemDelivery else TASKS


def sorted_by_kind(deliveries: Iterable[AnyDelivery]) -> Iterator[tuple[Kind, list[AnyDelivery]]]:
    """The deliveries of each kind that is among them, by id: there is one lock order for everyone (R6)."""
    of_tasks: list[AnyDelivery] = []
    of_steps: list[AnyDelivery] = []
    of_items: list[AnyDelivery] = []
    for delivery in sorted(deliveries):
        kind = kind_of(delivery)
        (of_steps if kind is STEPS else of_items if kind is ITEMS else of_tasks).append(delivery)
    for kind, alike in ((TASKS, of_tasks), (STEPS, of_steps), (ITEMS, of_items)):
        if alike:
            yield kind, alike
