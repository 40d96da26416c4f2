"""Makes a step of a function and its options, or says at once what is wrong with them."""

from __future__ import annotations

from typing import Any, cast

from catbird_django.definitions.checked import checked_flag
from catbird_django.definitions.conditions import Condition, parse_condition
from catbird_django.definitions.flow_options import (
    AnyStepOptions,
    MapOptions,
    StepOptions,
    max_failed_items,
    skip_policy,
    step_names,
    timing,
)
from catbird_django.definitions.names import check_name
from catbird_django.definitions.options import handler_options, max_lost, name_of, on_cancel, retry_policy
from catbird_django.definitions.parameters import INPUT, Parameter, Source, read_parameters
from catbird_django.definitions.signal import Signal, as_signal
from catbird_django.definitions.signature import Handler, is_async, location_of
from catbird_django.definitions.step import StepDefinition
from catbird_django.definitions.step_kinds import StepKind, refuse_foreign_options
from catbird_django.errors import DefinitionError

# The options of an inline step: the rest is about being run by itself.
_INLINE_OPTIONS = {"inline", "depends_on", "on_exhausted", "max_lost"}


def define_step(
    *,
    name: str | None,
    handler: Handler,
    options: AnyStepOptions,
    kind: StepKind = StepKind.STEP,
    over: object = "",
    initial: Any = None,
) -> StepDefinition:
    """Declare a step; refuse at once, with its place, what can be known to be wrong without the other steps."""
    name = name if name is not None else getattr(handler, "__name__", None)
    location = location_of(handler)
    try:
        refuse_foreign_options(options, kind)
        goes_over = "" if kind is StepKind.STEP else _over(over)
        return _define(check_name(name, "step"), handler, location, options, kind, goes_over, initial)
    except DefinitionError as error:
        raise DefinitionError(f"{location}: {kind} {name!r}: {error}") from None


def _define(
    name: str, handler: Handler, location: str, options: AnyStepOptions, kind: StepKind, over: str, initial: Any
) -> StepDefinition:
    given = options.get("depends_on")
    depends_on = None if given is None else step_names("depends_on", given)
    parameters = read_parameters(handler, depends_on, kind=kind, over=over)
    after = step_names("after", options.get("after", ()))
    signal = as_signal(options.get("signal"))
    delay, deadline = timing(options)
    own = cast("StepOptions", options)  # the kinds without these options have been refused them
    step = StepDefinition(
        name=name,
        kind=kind,
        handler=handler,
        location=location,
        parameters=parameters,
        after=after,
        condition=_condition(parameters, after, signal, options),
        signal=signal,
        may_skip=checked_flag("may_skip", own.get("may_skip", False)),
        on_unmet=skip_policy("on_unmet", options.get("on_unmet", "skip")),
        on_exhausted=skip_policy("on_exhausted", options.get("on_exhausted", "fail")),
        delay=delay,
        deadline=deadline,
        retry=retry_policy(options),
        max_lost=max_lost(options),
        how_to_run=handler_options(options),
        on_cancel=on_cancel(options),
        over=over,
        initial=initial,
        max_failed_items=max_failed_items(cast("MapOptions", options)),
        is_inline=checked_flag("inline", own.get("inline", False)),
        is_atomic=checked_flag("atomic", own.get("atomic", False)),
    )
    _refuse_contradictions(step, options)
    return step


def _over(given: object) -> str:
    name = name_of(given)
    if not isinstance(name, str):
        raise DefinitionError(f'over must be a step or "input", not {given!r}')
    return name if name == INPUT else check_name(name, "step")


def _condition(
    parameters: tuple[Parameter, ...], after: tuple[str, ...], signal: Signal | None, options: AnyStepOptions
) -> Condition | None:
    text = options.get("condition")
    if text is None:
        return None
    steps = (parameter.step for parameter in parameters if parameter.step)
    return parse_condition(text, roots={INPUT, *steps, *after} | ({"signal"} if signal else set()))


def _refuse_contradictions(step: StepDefinition, options: AnyStepOptions) -> None:
    if step.signal is None and any(parameter.source is Source.SIGNAL for parameter in step.parameters):
        raise DefinitionError("it takes a signal but waits for none: say which with signal=Type")
    if "on_unmet" in options and step.condition is None:
        raise DefinitionError("on_unmet says what follows from its condition, but it has none")
    for parameter in step.parameters:
        if parameter.step and parameter.step in step.after:
            raise DefinitionError(f"after names {parameter.step!r}, whose output it takes anyway: leave it out there")
        if parameter.source is Source.STEP and parameter.step == step.over:
            raise DefinitionError(
                f"it goes over {step.over!r} and takes it as a whole too, once for each item: "
                f"let a step of its own make of the whole what the items need"
            )
    if step.is_inline:
        _refuse_inline(step, options)
    if step.is_atomic:
        _refuse_atomic(step)


def _refuse_inline(step: StepDefinition, options: AnyStepOptions) -> None:
    for option in sorted(options.keys() - _INLINE_OPTIONS):
        raise DefinitionError(
            f"it is inline, so it runs together with the step before it, and has no {option} of its own"
        )
    taken = [parameter.step for parameter in step.parameters if parameter.step]
    if len(taken) != 1:
        raise DefinitionError(f"it is inline, so it takes the output of exactly one step, not of {len(taken)}")
    if any(parameter.source is Source.CONTEXT for parameter in step.parameters):
        raise DefinitionError("it is inline, so it is no run of its own, and has no ctx")
    if is_async(step.handler):
        raise DefinitionError("it is inline, so it cannot be async: it runs in the thread of whoever runs it")


def _refuse_atomic(step: StepDefinition) -> None:
    if is_async(step.handler):
        raise DefinitionError("it is atomic, so it cannot be async: a transaction belongs to one thread")
    if step.how_to_run.isolation == "process":
        raise DefinitionError('it is atomic, so it cannot have isolation="process": the transaction is the worker\'s')
