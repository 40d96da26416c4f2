"""Signals: give a step of a run what it waits for from outside, such as an approval (F12)."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async

from catbird_django.client.options import checked_actor, checked_key, checked_run_id, storable
from catbird_django.client.wake import wake_after_commit, wake_tick_after_commit
from catbird_django.codec import Codec, codec_for, encode_any
from catbird_django.conf import get_settings
from catbird_django.definitions.options import Named, name_of
from catbird_django.definitions.registry import registry
from catbird_django.engine import signals as engine
from catbird_django.errors import InvalidOption, PayloadError, SignalRefused
from catbird_django.statuses import SignalVerdict


def signal_flow(
    run_id: int,
    step: str | Named,
    payload: Any = None,
    *,
    actor: str = "",
    dedupe_id: str | None = None,
    override_four_eyes: bool = False,
    refusal: SignalVerdict | None = None,
    using: str | None = None,
) -> None:
    """Give a step of a flow run the signal that it waits for, or will wait for.

    The payload may be the typed value or its JSON form; it is checked against the signal's type where this process
    declares it. Raise SignalRefused, with the verdict, when it does not count: that is on record too. The same
    `dedupe_id` again gets the first answer. Joins the current transaction of the database.

    Who may give it is for the caller to know: who must not, for one (`refusal=SignalVerdict.NOT_ALLOWED`, which is
    put on record), or who may although they started the run (`override_four_eyes`).
    """
    run_id, name, actor = checked_run_id(run_id), _step_name(step), checked_actor(actor)
    dedupe_id = None if dedupe_id is None else checked_key("dedupe_id", dedupe_id)
    using = using or get_settings().database
    try:
        text = _encoded(payload, _codec_of(run_id, name, using))
    except PayloadError as error:
        verdict = _record_malformed(run_id, name, payload, str(error), actor, dedupe_id, using)
        _refuse_unless_accepted(verdict, run_id, name, error)
        return
    answer = engine.signal_flow(
        run_id,
        name,
        text,
        actor=actor,
        dedupe_id=dedupe_id,
        refusal=refusal,
        override=override_four_eyes,
        using=using,
    )
    if answer.verdict is SignalVerdict.ACCEPTED:
        wake_after_commit(answer.queue or "default", using=using)
        wake_tick_after_commit(using=using)  # what it lets go on may have a delay
    _refuse_unless_accepted(answer.verdict, run_id, name, None)


async def asignal_flow(
    run_id: int,
    step: str | Named,
    payload: Any = None,
    *,
    actor: str = "",
    dedupe_id: str | None = None,
    using: str | None = None,
) -> None:
    """Async twin of `signal_flow`."""
    await sync_to_async(signal_flow)(run_id, step, payload, actor=actor, dedupe_id=dedupe_id, using=using)


def _step_name(step: object) -> str:
    name = name_of(step)
    if not isinstance(name, str):
        raise InvalidOption(f"step: must be a step or its name, not {step!r:.80}")
    return storable(name)


def _codec_of(run_id: int, step: str, using: str) -> Codec[Any] | None:
    """The type of the signal, where this process declares the step as the run's version of the flow has it."""
    waiting = engine.find_signal(run_id, step, using=using) if registry.flows else None
    draft = registry.flows.get(waiting.flow) if waiting else None
    if waiting is None or draft is None or draft.problems():
        return None
    known = draft.definition.steps.get(step)
    if known is None or known.signal is None or draft.definition.plan.step(step).fingerprint != waiting.fingerprint:
        return None
    return codec_for(known.signal.type)


def _encoded(payload: Any, codec: Codec[Any] | None) -> str:
    max_bytes = get_settings().max_payload
    if codec is None:
        return encode_any(payload, name="signal", max_bytes=max_bytes)
    return codec.encode(payload, name="signal", max_bytes=max_bytes)


def _record_malformed(
    run_id: int, step: str, payload: Any, complaint: str, actor: str, dedupe_id: str | None, using: str
) -> SignalVerdict:
    """Write down a signal whose payload we refuse, with the payload where that can be stored at all."""
    try:
        text: str | None = _encoded(payload, None)
    except PayloadError:
        text = None
    return engine.signal_flow(
        run_id,
        step,
        text,
        actor=actor,
        dedupe_id=dedupe_id,
        refusal=SignalVerdict.MALFORMED,
        message=storable(complaint),
        using=using,
    ).verdict


def _refuse_unless_accepted(verdict: SignalVerdict, run_id: int, step: str, cause: PayloadError | None) -> None:
    if verdict is SignalVerdict.ACCEPTED:  # also the first answer to a dedupe id that comes again
        return
    detail = f": {cause}" if verdict is SignalVerdict.MALFORMED and cause is not None else ""
    raise SignalRefused(f"{step!r} of run {run_id}: {verdict.label}{detail}", verdict=verdict) from cause
