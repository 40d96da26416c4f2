"""`sql/signals.sql`, called from Python."""

from __future__ import annotations

from typing import NamedTuple

from catbird_django.engine.call import Function
from catbird_django.engine.tasks import JsonText
from catbird_django.statuses import SignalVerdict

SIGNAL = Function(
    "cb_signal_flow",
    run_id="bigint",
    step="text",
    payload="jsonb",
    actor="text",
    dedupe_id="text",
    refusal="text",
    message="text",
    notify="boolean",
    override="boolean",
)
FIND = Function("cb_find_signal", run_id="bigint", step="text")


class WaitingStep(NamedTuple):
    """A step that takes a signal: the name of its flow, and the fingerprint of how it is called."""

    flow: str
    fingerprint: str


class SignalAnswer(NamedTuple):
    """What became of a signal, and the queue of its run, if there is one."""

    verdict: SignalVerdict
    queue: str | None


def signal_flow(
    run_id: int,
    step: str,
    payload: JsonText | None,
    *,
    actor: str,
    dedupe_id: str | None = None,
    refusal: SignalVerdict | None = None,
    message: str = "",
    override: bool = False,
    using: str,
) -> SignalAnswer:
    """Give a step its signal, or write down why the caller refuses to; say what became of it.

    With `override` four eyes do not matter: the caller knows that this actor may.
    """
    [(verdict, queue)] = SIGNAL.rows(
        using,
        run_id=run_id,
        step=step,
        payload=payload,
        actor=actor,
        dedupe_id=dedupe_id,
        refusal=None if refusal is None else refusal.value,
        message=message,
        notify=False,
        override=override,
    )
    return SignalAnswer(SignalVerdict(verdict), queue)


def find_signal(run_id: int, step: str, *, using: str) -> WaitingStep | None:
    """Find which step, of which shape, a signal would be given to; None if the run has no such step with a signal."""
    rows = FIND.rows(using, run_id=run_id, step=step)
    return WaitingStep(*rows[0]) if rows else None
