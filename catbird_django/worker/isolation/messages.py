"""Claims and outcomes as plain JSON, for the way between a worker and the process of a handler (R11)."""

from __future__ import annotations

from datetime import timedelta

from catbird_django.engine.items import ItemClaim, ItemDelivery
from catbird_django.engine.steps import Claim, StepClaim, StepDelivery
from catbird_django.engine.tasks import Delivery, TaskClaim
from catbird_django.worker.channel import Message
from catbird_django.worker.outcome import Canceled, Completed, EndedEarly, Failed, Outcome, Released, Settled, Skipped


def claim_as_json(claim: Claim) -> Message:
    """A claim without its token: only the worker may settle it."""
    return {name: value for name, value in claim._asdict().items() if name != "delivery"}


def claim_from_json(message: Message) -> Claim:
    if "step_run_id" in message:
        return ItemClaim(delivery=ItemDelivery(message["run_id"], ""), **message)
    if "flow_run_id" in message:
        return StepClaim(delivery=StepDelivery(message["run_id"], ""), **message)
    return TaskClaim(delivery=Delivery(message["run_id"], ""), **message)


def outcome_as_json(outcome: Outcome) -> Message:
    match outcome:
        case Completed(output=output, inline=inline):
            return {"kind": "completed", "output": output, "inline": inline}
        case EndedEarly(output=output, reason=reason):
            return {"kind": "ended_early", "output": output, "reason": reason}
        case Failed(error=error, retry_in=retry_in):
            return {"kind": "failed", "error": error, "retry_in": _seconds(retry_in)}
        case Released(delay=delay):
            return {"kind": "released", "delay": _seconds(delay)}
        case Canceled(reason=reason):
            return {"kind": "canceled", "reason": reason}
        case Skipped(reason=reason):
            return {"kind": "skipped", "reason": reason}
        case Settled():
            raise ValueError("only the worker settles")


def outcome_from_json(claim: Claim, message: Message) -> Outcome:
    match message["kind"]:
        case "completed":
            return Completed(claim, message["output"], tuple((step, output) for step, output in message["inline"]))
        case "ended_early":
            return EndedEarly(claim, message["output"], message["reason"])
        case "failed":
            return Failed(claim, message["error"], _duration(message["retry_in"]))
        case "released":
            return Released(claim, _duration(message["delay"]))
        case "canceled":
            return Canceled(claim, message["reason"])
        case "skipped":
            return Skipped(claim, message["reason"])
        case unknown:
            raise ValueError(f"there is no outcome {unknown!r}")


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
