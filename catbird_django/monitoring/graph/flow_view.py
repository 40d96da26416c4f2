"""What there is to see of a flow: of its definition, or of a run with the status of each step."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from catbird_django.definitions.parameters import INPUT
from catbird_django.definitions.plan import DependencyPlan, FlowPlan, StepPlan
from catbird_django.monitoring.durations import in_one_unit
from catbird_django.monitoring.graph.view import (
    Badge,
    BadgeKind,
    EdgeKind,
    EdgeView,
    Form,
    GraphView,
    NodeView,
    Shape,
    Status,
)

# No step can have such a name.
START = "flow:start"
END = "flow:end"


def view_of_flow(plan: FlowPlan, *, statuses: Mapping[str, Status] | None = None) -> GraphView:
    """Show a flow; with the statuses of its steps, by name, show a run of it."""
    return GraphView(
        title=_("Flow %(name)s") % {"name": plan.name},
        description=_describe(plan),
        nodes=(
            NodeView(id=START, label=_("start"), shape=Shape.START, tooltip=_described_input(plan)),
            *(_node(step, (statuses or {}).get(step.name)) for step in plan.steps),
            NodeView(id=END, label=_("end"), shape=Shape.END),
        ),
        edges=_edges(plan),
    )


def _edges(plan: FlowPlan) -> tuple[EdgeView, ...]:
    """From the start to the steps that need none, between steps, and from the steps that nobody needs to the end."""
    edges = [_edge_from_start(step) for step in plan.steps if not step.dependencies or step.over == INPUT]
    edges += [_edge(needed, step) for step in plan.steps for needed in step.dependencies]
    edges += [EdgeView(source=step.name, target=END) for step in plan.steps if step.is_final]
    return tuple(edges)


def _edge_from_start(step: StepPlan) -> EdgeView:
    if step.over == INPUT:
        return EdgeView(source=START, target=step.name, kind=EdgeKind.ITEMS, label=_("item by item"))
    return EdgeView(source=START, target=step.name)


def _edge(needed: DependencyPlan, step: StepPlan) -> EdgeView:
    if needed.step == step.over:
        return EdgeView(source=needed.step, target=step.name, kind=EdgeKind.ITEMS, label=_("item by item"))
    if needed.is_order_only:
        return EdgeView(source=needed.step, target=step.name, kind=EdgeKind.ORDER, label=_("order only"))
    if needed.is_optional:
        return EdgeView(source=needed.step, target=step.name, kind=EdgeKind.OPTIONAL, label=_("optional"))
    return EdgeView(source=needed.step, target=step.name)


def _node(step: StepPlan, status: Status | None) -> NodeView:
    return NodeView(
        id=step.name,
        label=step.name,
        form=_form(step),
        is_atomic=step.is_atomic,
        kind=kind_in_words(step),
        status=status,
        badges=tuple(_badges(step)),
        tooltip=tuple(_tooltip(step)),
    )


def _form(step: StepPlan) -> Form:
    if step.is_inline:
        return Form.SLIP
    return {"map": Form.STACK, "reduce": Form.FUNNEL}.get(step.kind, Form.CARD)


def kind_in_words(step: StepPlan) -> str:
    """What kind of step it is."""
    if step.is_inline:
        return _("inline step")
    kinds = {"step": _("step"), "map": _("map"), "reduce": _("reduce")}
    kind = kinds.get(step.kind, step.kind)
    return _("atomic %(kind)s") % {"kind": kind} if step.is_atomic else kind


def _tooltip(step: StepPlan) -> list[str]:
    lines = [step.description.partition("\n\n")[0]] if step.description else []
    lines.append(step.handler)
    lines += _particulars(step)
    if step.takes_input and step.over != INPUT:
        lines.append(_("takes the flow's input"))
    if step.may_skip:
        lines.append(_("may skip itself"))
    return lines


def _particulars(step: StepPlan) -> list[str]:
    """What is special about how the step runs, in words."""
    over = (
        _("each item of the flow's input") if step.over == INPUT else _("each item of %(step)s") % {"step": step.over}
    )
    said = {"map": _("map: runs once for %(over)s"), "reduce": _("reduce: takes %(over)s, one after the other")}
    lines = [said[step.kind] % {"over": over}] if step.kind in said else []
    if step.is_inline:
        lines.append(_("inline: runs together with the step before it"))
    if step.is_atomic:
        lines.append(_("atomic: what it writes is committed together with its completion"))
    return lines


def _badges(step: StepPlan) -> list[Badge]:
    badges = []
    if step.condition is not None:
        text = step.condition["text"]
        badges.append(
            Badge(kind=BadgeKind.CONDITION, text=text, meaning=_("only if %(condition)s") % {"condition": text})
        )
    if step.signal is not None:
        badges.append(_signal_badge(step.signal, step.signal_schema or {}))
    if step.kind == "map" and step.max_failed_items != 0:
        badges.append(_tolerance_badge(step.max_failed_items))
    if step.max_retries:
        text = ngettext("%(count)d retry", "%(count)d retries", step.max_retries) % {"count": step.max_retries}
        badges.append(Badge(kind=BadgeKind.RETRIES, text=str(step.max_retries), meaning=text))
    return badges + _time_badges(step)


def _tolerance_badge(count: int | None) -> Badge:
    if count is None:
        return Badge(kind=BadgeKind.TOLERANCE, text=_("any"), meaning=_("any of its items may fail"))
    meaning = ngettext("%(count)d of its items may fail", "%(count)d of its items may fail", count) % {"count": count}
    return Badge(kind=BadgeKind.TOLERANCE, text=str(count), meaning=meaning)


def _signal_badge(signal: Mapping[str, Any], schema: Mapping[str, Any]) -> Badge:
    name = str(schema.get("title") or _("signal"))
    if signal["quorum"] > 1:
        name = _("%(signal)s from %(count)d") % {"count": signal["quorum"], "signal": name}
    return Badge(kind=BadgeKind.SIGNAL, text=name, meaning=_("waits for a signal: %(signal)s") % {"signal": name})


def _time_badges(step: StepPlan) -> list[Badge]:
    badges = []
    if step.delay is not None:
        time = in_one_unit(timedelta(seconds=step.delay))
        badges.append(Badge(kind=BadgeKind.DELAY, text=time, meaning=_("waits %(time)s first") % {"time": time}))
    if step.deadline is not None:
        time = in_one_unit(timedelta(seconds=step.deadline))
        badges.append(Badge(kind=BadgeKind.DEADLINE, text=time, meaning=_("fails after %(time)s") % {"time": time}))
    return badges


def _described_input(plan: FlowPlan) -> tuple[str, ...]:
    title = plan.input_schema.get("title")
    return (_("input: %(type)s") % {"type": title},) if title else ()


def _describe(plan: FlowPlan) -> str:
    """The picture in sentences."""
    count = len(plan.steps)
    first = ngettext("%(count)d step.", "%(count)d steps.", count) % {"count": count}
    return " ".join([*filter(None, [plan.description]), first, *map(_sentence, plan.steps)])


def _sentence(step: StepPlan) -> str:
    needed = ", ".join(dependency.step for dependency in step.dependencies)
    place = (_("after %(steps)s") % {"steps": needed}) if needed else _("at the start")
    return "; ".join([f"{step.name}: {place}", *_particulars(step), *(badge.meaning for badge in _badges(step))]) + "."
