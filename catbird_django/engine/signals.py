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
)


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
    using: str,
) -> SignalAnswer:
    """Give a step its signal, or write down why the caller refuses to; say what became of it."""
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
    )
    return SignalAnswer(SignalVerdict(verdict), queue)
