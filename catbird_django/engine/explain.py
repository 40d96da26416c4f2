"""`sql/explain.sql`, called from Python."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from catbird_django.engine.call import Function
from catbird_django.engine.tasks import JsonText

EXPLAIN = Function("cb_explain_flow", run_id="bigint", worker_ttl="interval")


class UnmetRequirement(NamedTuple):
    """Something that a step waits for."""

    step: str
    status: str
    requirement: str
    """dependency, signal, timer, worker, slot, items, running or stopping."""
    subject: str | None
    detail: JsonText | None


def explain_flow(run_id: int, *, worker_ttl: timedelta, using: str) -> list[UnmetRequirement]:
    """Say what each unfinished step of a run waits for, in the order of the flow."""
    return [UnmetRequirement(*row) for row in EXPLAIN.rows(using, run_id=run_id, worker_ttl=worker_ttl)]
