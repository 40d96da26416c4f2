"""Starts runs of flows: from a Python call to rows in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Unpack

from asgiref.sync import sync_to_async

from catbird_django.client.bulk import Starter, for_each
from catbird_django.client.flow_handles import FlowHandle
from catbird_django.client.options import CheckedOptions, FlowRunOptions, check_flow_options
from catbird_django.client.registration import register_flows
from catbird_django.client.wake import wake_after_commit, wake_tick_after_commit
from catbird_django.codec import encode_any
from catbird_django.conf import get_settings
from catbird_django.definitions.flow import FlowDefinition
from catbird_django.definitions.registry import registry
from catbird_django.engine import flows as engine
from catbird_django.errors import UnknownName
from catbird_django.statuses import FlowRunVerdict


def run_flow_definition(
    definition: FlowDefinition, inputs: Iterable[Any], options: CheckedOptions
) -> list[FlowHandle[Any]]:
    """Start one run per input of a flow as this process declares it, making sure that the database knows it."""
    starter = Starter(
        what=f"flow {definition.name!r}",
        codec=definition.input_codec,
        start=partial(_start, definition.name, definition.fingerprint, options, has_timers=_has_timers(definition)),
        register=partial(register_flows, [definition], using=options.using),
        using=options.using,
    )
    run_ids = starter.start_all(inputs)
    return [FlowHandle(run_id, using=options.using, definition=definition) for run_id in run_ids]


def _has_timers(definition: FlowDefinition) -> bool:
    """Whether the upkeep has something to do at a time that a new run brings with it."""
    steps = definition.steps.values()
    return definition.deadline is not None or any(step.delay or step.deadline for step in steps)


def _start(
    name: str, fingerprint: str | None, options: CheckedOptions, inputs: list[str], *, has_timers: bool
) -> list[int] | None:
    """Start runs of a flow by name; None if the database does not know it."""
    answers = engine.run_flows(
        name,
        inputs,
        fingerprint=fingerprint,
        queue=options.queue,
        priority=options.priority,
        headers=options.headers,
        run_at=options.run_at,
        delay=options.delay,
        concurrency_keys=for_each(options.concurrency_key, inputs),
        idempotency_keys=for_each(options.idempotency_key, inputs),
        expires_at=options.expires_at,
        tags=options.tags,
        actor=options.actor,
        using=options.using,
    )
    if answers[0].verdict is FlowRunVerdict.UNKNOWN:
        return None
    [answer, *_] = answers
    # The database knows whether it is due: a delay may be 0, and a time past.
    if answer.is_awaited is None or options.expires_at is not None or has_timers:
        wake_tick_after_commit(using=options.using)
    if answer.is_awaited is not None:
        wake_after_commit(answer.queue or "default", is_awaited=answer.is_awaited, using=options.using)
    return [answer.run_id for answer in answers if answer.run_id is not None]


def run_flow(name: str, input: Any = None, **options: Unpack[FlowRunOptions]) -> FlowHandle[Any]:
    """Start a run of a flow by its name, also of one that only other processes declare.

    The input is checked against the flow's type where this process declares it. Raise UnknownName for a name that
    neither this process nor the database knows.
    """
    checked = check_flow_options(options)
    if name in registry.flows:
        registry.refuse_flow_conflict(name)
        return run_flow_definition(registry.flow(name).definition, [input], checked)[0]
    encoded = encode_any(input, name="input", max_bytes=get_settings().max_payload)
    run_ids = _start(name, None, checked, [encoded], has_timers=False)
    if run_ids is None:
        raise UnknownName(f"no flow named {name!r} is registered in database {checked.using!r}")
    return FlowHandle(run_ids[0], using=checked.using)


async def arun_flow(name: str, input: Any = None, **options: Unpack[FlowRunOptions]) -> FlowHandle[Any]:
    """Async twin of `run_flow`."""
    return await sync_to_async(run_flow)(name, input, **options)
