"""How much work flows have: their steps, and items of their maps, that are due or in the hands of workers.

Due ones are counted in the indexes that claims use, of each step and queue up to a limit; held ones in theirs, up to
the limit in all.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from catbird_django.engine.steps import find_step_lanes
from catbird_django.models import Item, Step, StepRun
from catbird_django.models.tasks import SUSPECT
from catbird_django.statuses import StepStatus


def count_due_work(*, limit: int, using: str) -> Counter[str]:
    """How many steps and items of each flow are due."""
    steps = {step.pk: step for step in Step.objects.using(using).select_related("flow").only("kind", "flow__name")}
    heads = find_step_lanes(list(steps), None, using=using)
    counted: Counter[str] = Counter()
    for queue, step_id, is_suspect in {(head.queue, -head.handler_id, head.is_suspect) for head in heads}:
        step = steps[step_id]
        model: Any = Item if step.kind == "map" else StepRun
        due = model.objects.using(using).filter(queue=queue, step_id=step_id, status="queued", visible_at__isnull=True)
        # One of two partial indexes: with neither condition, PostgreSQL can use neither.
        due = due.filter(lost_count__gte=SUSPECT) if is_suspect else due.filter(lost_count__lt=SUSPECT)
        # In the order of the claim index, so that it is entered there and left at the limit.
        counted[step.flow.name] += due.order_by("queue", "step_id", "priority", "pk")[:limit].count()
    return counted


def count_held_work(*, limit: int, using: str) -> Counter[str]:
    """How many steps and items of each flow workers hold."""
    counted: Counter[int] = Counter()
    for model in (StepRun, Item):
        held = model._default_manager.using(using).filter(lease_until__isnull=False)  # noqa: SLF001
        held = held.filter(status__in=[StepStatus.STARTED, StepStatus.CANCELING]).order_by("lease_until")
        counted.update(held.values_list("step_id", flat=True)[:limit])
    flows = dict(Step.objects.using(using).filter(pk__in=list(counted)).values_list("pk", "flow__name"))
    by_flow: Counter[str] = Counter()
    for step_id, count in counted.items():
        by_flow[flows.get(step_id, "?")] += count
    return by_flow
