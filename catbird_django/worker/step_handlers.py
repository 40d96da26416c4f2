"""The handlers of flows' steps: called with what the steps before them gave, by keyword (F1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from json.decoder import JSONDecoder
from typing import Any

from catbird_django.client.context import Reporter, StepContext
from catbird_django.definitions.flow import FlowDefinition
from catbird_django.definitions.parameters import Parameter, Source
from catbird_django.definitions.registry import Registry
from catbird_django.definitions.step import StepDefinition
from catbird_django.engine.steps import StepClaim, StepKey
from catbird_django.errors import DefinitionError, UnknownName
from catbird_django.worker.handlers import Handler

Reader = Callable[[str | None], Any]

_decode_at = JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True, kw_only=True)
class StepHandler(Handler):
    """A step's function."""

    what = "step"

    flow: str
    step: str
    parameters: tuple[tuple[Parameter, Reader], ...]

    def arguments(self, claim: StepClaim, reporter_for: Callable[[StepClaim], Reporter]) -> list[Any]:
        """One argument: what the function is called with, by keyword."""
        outputs = parts_of(claim.outputs) if claim.outputs else {}
        by_keyword: dict[str, Any] = {}
        for parameter, value_of in self.parameters:
            match parameter.source:
                case Source.STEP:
                    value = value_of(outputs.get(parameter.step))
                case Source.INPUT:
                    value = value_of(claim.input)
                case Source.SIGNAL:
                    value = value_of(claim.signal)
                case Source.CONTEXT:
                    value = self._context(claim, reporter_for(claim))
            by_keyword[parameter.name] = value
        return [by_keyword]

    def _context(self, claim: StepClaim, reporter: Reporter) -> StepContext:
        return StepContext(
            run_id=claim.flow_run_id,
            flow=self.flow,
            step=self.step,
            queue=claim.queue,
            attempt=claim.attempt,
            headers=json.loads(claim.headers) if claim.headers else {},
            reporter=reporter,
        )


def parts_of(text: str) -> dict[str, str]:
    """The values of a JSON object by key, each as the text it has there: types are read from text, exactly."""
    parts: dict[str, str] = {}
    place = 1
    while text[place] != "}":
        key, place = _decode_at(text, place)
        place += 2  # PostgreSQL writes ": ", and ", " between
        _, end = _decode_at(text, place)
        parts[key] = text[place:end]
        place = end + 2 if text[end] == "," else end
    return parts


def build_step_handlers(flows: Iterable[FlowDefinition]) -> dict[StepKey, StepHandler]:
    """Look up once what every claim of these flows' steps needs."""
    return {
        StepKey(flow.name, planned.name, planned.fingerprint): build_step_handler(flow, flow.steps[planned.name])
        for flow in flows
        for planned in flow.plan.steps
    }


def build_step_handler(flow: FlowDefinition, step: StepDefinition) -> StepHandler:
    """Look up once what every claim of a step needs."""
    return StepHandler(
        name=f"{flow.name}.{step.name}",
        flow=flow.name,
        step=step.name,
        function=_by_keyword(step.handler),
        is_async=step.is_async,
        retry=step.retry,
        options=step.how_to_run,
        output_codec=step.output_codec,
        may_skip=step.may_skip,
        parameters=tuple(
            (argument.parameter, _no_value if argument.parameter.source is Source.CONTEXT else argument.reader())
            for argument in step.arguments
        ),
    )


def _by_keyword(function: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
    def call(arguments: dict[str, Any]) -> Any:
        return function(**arguments)

    return call


def _no_value(_: str | None) -> None:
    """A context is made, not read."""


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
