"""The handlers of flows' steps: called with what the steps before them gave, by keyword (F1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from catbird_django.client.context import Reporter, StepContext
from catbird_django.definitions.flow import FlowDefinition
from catbird_django.definitions.parameters import Source
from catbird_django.definitions.registry import Registry
from catbird_django.definitions.step import StepDefinition
from catbird_django.definitions.step_kinds import StepKind
from catbird_django.engine.items import ItemClaim
from catbird_django.engine.steps import Claim, StepClaim, StepKey
from catbird_django.engine.tasks import JsonText
from catbird_django.errors import DefinitionError, UnknownName
from catbird_django.worker.handlers import Handler
from catbird_django.worker.inline import InlineStep, inline_steps_after, run_inline
from catbird_django.worker.item_lists import Pages, ReadItems
from catbird_django.worker.reduces import Items, items_of, reduce_function
from catbird_django.worker.step_arguments import Fill, Given, fills_of, take_apart


@dataclass(frozen=True, slots=True, kw_only=True)
class StepHandler(Handler):
    """A step's function; of a map, for its items."""

    what = "step"

    flow: str
    step: str
    fills: tuple[tuple[str, Fill], ...]
    context_parameter: str | None
    read_items: ReadItems
    items: Callable[[Given], Items] | None
    """Of a reduce: what it goes over."""
    inline: tuple[InlineStep, ...]
    """What runs in memory after it."""

    def arguments(self, claim: StepClaim | ItemClaim, reporter_for: Callable[[Any], Reporter]) -> list[Any]:
        """What the function is called with, by keyword; of a reduce, also what it goes over."""
        given = take_apart(claim, self.read_items)
        by_keyword = {name: fill(given) for name, fill in self.fills}
        reporter = reporter_for(claim)
        if self.context_parameter is not None:
            by_keyword[self.context_parameter] = self._context(claim, reporter)
        return [by_keyword] if self.items is None else [by_keyword, self.items(given), reporter.is_canceled]

    def _context(self, claim: StepClaim | ItemClaim, reporter: Reporter) -> StepContext:
        return StepContext(
            run_id=claim.flow_run_id,
            flow=self.flow,
            step=self.step,
            index=claim.place if isinstance(claim, ItemClaim) else None,
            queue=claim.queue,
            attempt=claim.attempt,
            headers=json.loads(claim.headers) if claim.headers else {},
            reporter=reporter,
        )

    def knowing(self, inline_steps: Collection[str]) -> StepHandler:
        if all(one.name in inline_steps for one in self.inline):
            return self
        return replace(self, inline=tuple(one for one in self.inline if one.name in inline_steps))

    def run_inline(self, claim: Claim, output: JsonText, *, max_payload: int) -> tuple[tuple[str, JsonText], ...]:
        """Run the inline steps after it; return what they gave."""
        if not self.inline:
            return ()
        return run_inline(self.inline, claim, self.step, output, max_payload=max_payload)

    def terms_for_another_process(self, claim: Claim) -> dict[str, Any]:
        """What it takes of the database, for a process that does not read there; and the inline steps it may run."""
        maps = json.loads(claim.lists) if isinstance(claim, StepClaim | ItemClaim) and claim.lists else {}
        lists = {str(step_run_id): list(Pages(self.read_items, step_run_id)) for step_run_id in maps.values()}
        return {"lists": lists, "inline": [one.name for one in self.inline]}


def build_step_handlers(flows: Iterable[FlowDefinition], *, read_items: ReadItems) -> dict[StepKey, StepHandler]:
    """Look up once what every claim of these flows' steps needs."""
    return {
        StepKey(flow.name, planned.name, planned.fingerprint): build_step_handler(
            flow, flow.steps[planned.name], read_items=read_items
        )
        for flow in flows
        for planned in flow.plan.steps
    }


def build_step_handler(flow: FlowDefinition, step: StepDefinition, *, read_items: ReadItems) -> StepHandler:
    """Look up once what every claim of a step needs."""
    is_reduce = step.kind is StepKind.REDUCE
    context = step.argument_from(Source.CONTEXT)
    return StepHandler(
        name=f"{flow.name}.{step.name}",
        flow=flow.name,
        step=step.name,
        is_map=step.kind is StepKind.MAP,
        function=reduce_function(step) if is_reduce else _by_keyword(step.handler),
        is_async=step.is_async,
        is_atomic=step.is_atomic,
        retry=step.retry,
        options=step.how_to_run,
        output_codec=step.output_codec,
        early_codec=flow.output_codec,
        may_skip=step.may_skip,
        fills=fills_of(step, flow),
        context_parameter=None if context is None else context.parameter.name,
        read_items=read_items,
        items=items_of(step, flow) if is_reduce else None,
        inline=inline_steps_after(step.name, flow),
    )


def _by_keyword(function: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
    def call(arguments: dict[str, Any]) -> Any:
        return function(**arguments)

    return call


def runnable_flows(registry: Registry, names: Sequence[str] | None) -> list[FlowDefinition]:
    """The flows to run: all that are declared here, or the named ones. Raise DefinitionError with all that is wrong."""
    if names is not None and (unknown := [name for name in names if name not in registry.flows]):
        there_are = ", ".join(sorted(registry.flows))
        raise UnknownName(f"no flow named {unknown[0]!r} is declared here (there are: {there_are})")
    drafts = [draft for name, draft in registry.flows.items() if names is None or name in names]
    wrong = [str(conflict) for conflict in registry.flow_conflicts.values()]
    for draft in drafts:
        try:
            _ = draft.definition
        except DefinitionError as error:
            wrong.append(str(error))
    if wrong:
        raise DefinitionError("\n".join(wrong))
    return [draft.definition for draft in drafts]
