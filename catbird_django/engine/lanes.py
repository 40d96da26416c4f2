"""`sql/lanes.sql`, called from Python."""

from __future__ import annotations

from collections.abc import Sequence

from catbird_django.engine.call import Function
from catbird_django.engine.tasks import LaneHead

FIND = Function("cb_find_lanes", task_ids="bigint[]", step_ids="bigint[]", queues="text[]")


def find_lanes(
    task_ids: Sequence[int], step_ids: Sequence[int], queues: Sequence[str] | None, *, using: str
) -> list[LaneHead]:
    """Find the lanes of these tasks, steps and queues (None: all) that have due runs."""
    rows = FIND.rows(
        using, task_ids=list(task_ids), step_ids=list(step_ids), queues=None if queues is None else list(queues)
    )
    return [LaneHead(*row) for row in rows]
