"""A version of a flow as it is stored, read back as a plan: what is drawn and listed, also when no code declares it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from catbird_django.definitions.checked import in_seconds
from catbird_django.definitions.plan import DependencyPlan, FlowPlan, StepPlan
from catbird_django.models import StepDependency

if TYPE_CHECKING:
    from catbird_django.models import Flow, Step


def read_plan(flow: Flow) -> FlowPlan:
    """Read the plan of a stored version. What only its code knows, such as who takes the context, is left out."""
    steps = list(flow.steps.order_by("position"))
    needed: defaultdict[int, list[StepDependency]] = defaultdict(list)
    edges = StepDependency.objects.using(flow._state.db).filter(step_id__in=[step.pk for step in steps])  # noqa: SLF001
    for edge in edges.order_by("pk"):
        needed[edge.step_id].append(edge)
    by_id = {step.pk: step for step in steps}
    return FlowPlan(
        name=flow.name,
        description=flow.description,
        queue=flow.queue,
        on_fail=flow.on_fail,
        deadline=in_seconds(flow.deadline),
        retention=in_seconds(flow.retention),
        outputs=tuple(flow.outputs),
        output_required=flow.output_required,
        final_count=flow.final_count,
        input_schema=flow.input_schema or {},
        output_schema=flow.output_schema or {},
        steps=tuple(_plan_of(step, needed[step.pk], by_id) for step in steps),
    )


def _plan_of(step: Step, needed: list[StepDependency], by_id: dict[int, Step]) -> StepPlan:
    return StepPlan(
        position=step.position,
        name=step.name,
        kind=step.kind,
        description=step.description,
        handler=step.handler,
        dependencies=tuple(_dependency(edge, by_id[edge.dependency_id]) for edge in needed),
        dependency_count=step.dependency_count,
        required_count=step.required_count,
        takes_input=step.takes_input,
        takes_signal=step.takes_signal,
        takes_context=False,
        condition=step.condition,
        condition_roots=(),
        condition_needs_signal=step.condition_needs_signal,
        signal=step.signal,
        signal_schema=step.signal_schema,
        may_skip=step.may_skip,
        on_unmet=step.on_unmet,
        on_exhausted=step.on_exhausted,
        on_cancel=step.on_cancel,
        is_final=step.is_final,
        max_retries=step.max_retries,
        max_lost=step.max_lost,
        delay=in_seconds(step.delay),
        deadline=in_seconds(step.deadline),
        options=step.options,
        argument_schemas=step.argument_schemas,
        output_schema=step.output_schema or {},
        over=step.over,
        max_failed_items=step.max_failed_items,
        takes_lists=step.takes_lists,
        is_inline=step.is_inline,
        is_atomic=step.is_atomic,
        fingerprint=step.fingerprint,
    )


def _dependency(edge: StepDependency, needed: Step) -> DependencyPlan:
    return DependencyPlan(
        step=needed.name,
        step_position=needed.position,
        parameter=edge.parameter,
        argument_position=None,
        is_optional=edge.is_optional,
        is_order_only=edge.is_order_only,
    )
