"""Explain: what each unfinished step of a flow run waits for (F25)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import sync_to_async

from catbird_django.client.options import checked_run_id
from catbird_django.conf import get_settings
from catbird_django.engine.explain import explain_flow
from catbird_django.engine.flows import read_flow_run
from catbird_django.errors import RunNotFound
from catbird_django.statuses import StepStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One thing that a step waits for. As text it is a sentence for people."""

    step: str
    status: StepStatus
    requirement: str
    """dependency, signal, timer, worker, slot, items, running or stopping."""
    subject: str | None
    """The step that is needed, or the worker that runs it."""
    detail: dict[str, Any] = field(default_factory=dict)
    """What more there is to know, such as who may give a signal, or until when a timer runs."""

    def __str__(self) -> str:
        return f"{self.step} {_SENTENCES[self.requirement](self)}"

    def as_json(self) -> dict[str, Any]:
        """The requirement as plain JSON values."""
        return {
            "step": self.step,
            "status": self.status.value,
            "requirement": self.requirement,
            "subject": self.subject,
            "detail": self.detail,
        }


def explain(run_id: int, *, using: str | None = None) -> list[Requirement]:
    """Say what each unfinished step of a flow run waits for, in the order of the flow; nothing when it has ended.

    Raise RunNotFound if there is no such run.
    """
    settings = get_settings()
    using = using or settings.database
    if read_flow_run(checked_run_id(run_id), using=using) is None:
        raise RunNotFound(f"there is no flow run {run_id} in database {using!r}")
    return [
        Requirement(
            step=row.step,
            status=StepStatus(row.status),
            requirement=row.requirement,
            subject=row.subject,
            detail=json.loads(row.detail or "{}"),
        )
        for row in explain_flow(run_id, worker_ttl=settings.worker_ttl, using=using)
    ]


async def aexplain(run_id: int, *, using: str | None = None) -> list[Requirement]:
    """Async twin of `explain`."""
    return await sync_to_async(explain)(run_id, using=using)


def _dependency(it: Requirement) -> str:
    return f"waits for {it.subject}, which is {it.detail['status'].replace('_', ' ')}"


def _signal(it: Requirement) -> str:
    people = [f"who has the permission {it.detail['permission']}"] if it.detail.get("permission") else []
    people += [f"the group {group}" for group in it.detail.get("groups") or ()]
    people += [f"the user {user}" for user in it.detail.get("users") or ()]
    return f"waits for a signal (who may give it: {', '.join(people) or 'everybody'})"


def _timer(it: Requirement) -> str:
    why = {"retry": "to be tried again", "released": "after it was given back", "delay": "for its delay to pass"}
    return f"waits until {it.detail['until']}, {why[it.detail['why']]}"


def _worker(it: Requirement) -> str:
    return f"is queued in {it.detail['queue']!r}, and no worker that is alive has its handler"


def _slot(it: Requirement) -> str:
    count = it.detail["workers"]
    who = "the worker that has" if count == 1 else f"one of the {count} workers that have"
    return f"is queued in {it.detail['queue']!r}, for {who} its handler"


def _items(it: Requirement) -> str:
    spawned, done = it.detail["spawned"], it.detail["completed"]
    failed, canceled = it.detail["failed"], it.detail["canceled"]
    said = [f"{done} of {spawned} have completed"]
    said += [f"{failed} failed"] if failed else []
    said += [f"{canceled} were canceled"] if canceled else []
    nobody = "" if it.detail["workers"] else ", and no worker that is alive has its handler"
    return f"waits for its items: {', '.join(said)}{nobody}"


def _running(it: Requirement) -> str:
    return f"is running on {it.subject}, since {it.detail['since']}"


def _stopping(it: Requirement) -> str:
    return f"is being stopped on {it.subject}"


_SENTENCES = {
    "dependency": _dependency,
    "signal": _signal,
    "timer": _timer,
    "worker": _worker,
    "slot": _slot,
    "items": _items,
    "running": _running,
    "stopping": _stopping,
}
