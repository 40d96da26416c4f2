"""The declaration of a flow: while its steps are being declared, and whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, Union

from catbird_django.codec import Codec, codec_for
from catbird_django.definitions.checked import checked_duration, checked_flag, checked_text
from catbird_django.definitions.flow_checks import find_problems
from catbird_django.definitions.flow_options import FlowOptions, step_names
from catbird_django.definitions.flow_types import is_unstated, narrowest
from catbird_django.definitions.graph import dependents_of, final_steps, sort_steps
from catbird_django.definitions.item_types import list_of
from catbird_django.definitions.names import check_name
from catbird_django.definitions.options import on_fail, refuse_unknown_options
from catbird_django.definitions.parameters import INPUT, Source
from catbird_django.definitions.plan import FlowPlan, plan_of
from catbird_django.definitions.problems import Problem, refuse_problems
from catbird_django.definitions.skips import Skips, find_skips
from catbird_django.definitions.step import StepDefinition
from catbird_django.errors import DefinitionError

UNSTATED: Any = object()  # an input that is left to the annotations of the steps


@dataclass(frozen=True, kw_only=True)
class FlowDefinition:
    """A flow as code declares it. What a `FlowDraft` gives out has been checked, and nothing below raises."""

    name: str
    description: str
    queue: str
    stated_input: Any
    stated_output: tuple[str, ...]
    output_required: bool
    on_fail: str
    deadline: timedelta | None
    retention: timedelta | None
    location: str
    module: str
    steps: Mapping[str, StepDefinition] = field(default_factory=dict)
    """In the order of definition."""

    @cached_property
    def graph(self) -> dict[str, list[str]]:
        """What each step needs, by name."""
        return {name: [needed.step for needed in step.dependencies] for name, step in self.steps.items()}

    @cached_property
    def order(self) -> list[StepDefinition]:
        """The steps, each after what it needs."""
        return [self.steps[name] for name in sort_steps(self.graph)]

    @cached_property
    def final_steps(self) -> list[str]:
        return final_steps(self.graph)

    @cached_property
    def skips(self) -> dict[str, Skips]:
        """Why each step may be skipped."""
        return find_skips(self.steps)

    @cached_property
    def inline_followers(self) -> dict[str, list[str]]:
        """The inline steps that come right after each step, and run with it (F6)."""
        followers = dependents_of(self.graph)
        return {name: [one for one in followers[name] if self.steps[one].is_inline] for name in self.graph}

    @cached_property
    def outputs(self) -> list[str]:
        """The steps whose output may be the flow's: that of the first that completed (F8)."""
        return list(self.stated_output) or self.final_steps

    @cached_property
    def input_type(self) -> Any:
        """The type as stated; else the one that its steps take which all of them can read; else anything."""
        if self.stated_input is not UNSTATED:
            return self.stated_input
        taken = [annotation for step in self.steps.values() if not is_unstated(annotation := input_of(step))]
        return narrowest(taken) if taken else Any

    @cached_property
    def output_type(self) -> Any:
        """The type of whichever step's output is the flow's; or None, when all of them may be skipped."""
        types = [self.steps[name].result_type for name in self.outputs]
        may_be_none = all(self.skips[name] for name in self.outputs) and not self.output_required
        return Union[tuple(types + [None] * may_be_none)]  # noqa: UP007 - `|` refuses some annotations

    @cached_property
    def input_codec(self) -> Codec[Any]:
        return codec_for(self.input_type)

    @cached_property
    def output_codec(self) -> Codec[Any]:
        return codec_for(self.output_type)

    @cached_property
    def plan(self) -> FlowPlan:
        """What the database knows of the flow."""
        return plan_of(self)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the plan: equal hash, same version (F21)."""
        return self.plan.fingerprint()


def input_of(step: StepDefinition) -> Any:
    """The type of the input as a step takes it, as a whole or item by item; Any if it does not, or cannot be told."""
    try:
        whole, item = step.argument_from(Source.INPUT), step.argument_from(Source.ITEM)
    except DefinitionError:
        return Any
    if whole is not None and not is_unstated(whole.value_type):
        return whole.value_type
    return list_of(item.value_type) if item is not None and step.over == INPUT else Any


class FlowDraft:
    """A flow while its steps are being declared. Its first use checks it and ends the declaring."""

    def __init__(self, header: FlowDefinition) -> None:
        self._header = header
        self._steps: dict[str, StepDefinition] = {}
        self._definition: FlowDefinition | None = None

    @property
    def name(self) -> str:
        return self._header.name

    @property
    def location(self) -> str:
        return self._header.location

    @property
    def module(self) -> str:
        return self._header.module

    @property
    def on_fail(self) -> str:
        return self._header.on_fail

    def add(self, step: StepDefinition) -> None:
        """Enter a step; raise DefinitionError if its name is taken, or if the flow has been used."""
        if step.name in self._steps:
            other = self._steps[step.name].location
            raise DefinitionError(
                f"{step.location}: flow {self.name!r} already has a step {step.name!r}, at {other}; "
                f"give one of them another name with name=…"
            )
        if self._definition is not None:
            raise DefinitionError(
                f"{step.location}: flow {self.name!r} has been used without step {step.name!r}: "
                f"declare all steps where they are imported before the flow's first use"
            )
        self._steps[step.name] = step

    def problems(self) -> list[Problem]:
        """Find everything that is wrong with the flow as it is now."""
        return find_problems(self._whole()) if self._definition is None else []

    @property
    def definition(self) -> FlowDefinition:
        """The whole flow, checked once; raise DefinitionError with everything that is wrong."""
        if self._definition is None:
            whole = self._whole()
            refuse_problems(f"flow {self.name!r}", find_problems(whole))
            self._definition = whole
        return self._definition

    def _whole(self) -> FlowDefinition:
        return replace(self._header, steps=dict(self._steps))


def define_flow(*, name: str, input_type: Any, options: FlowOptions, location: str, module: str) -> FlowDraft:
    """Begin a flow; refuse at once, with its place, what can be known to be wrong without its steps."""
    refuse_unknown_options(options, FlowOptions, "flow")
    try:
        return FlowDraft(_header(name, input_type, options, location, module))
    except DefinitionError as error:
        raise DefinitionError(f"{location}: flow {name!r}: {error}") from None


def _header(name: str, input_type: Any, options: FlowOptions, location: str, module: str) -> FlowDefinition:
    return FlowDefinition(
        name=check_name(name, "flow"),
        description=checked_text("description", options.get("description", "")),
        queue=check_name(options.get("queue", "default"), "queue"),
        stated_input=input_type,
        stated_output=step_names("output", options.get("output", ())),
        output_required=checked_flag("output_required", options.get("output_required", False)),
        on_fail=on_fail(options.get("on_fail")),
        deadline=checked_duration("deadline", options.get("deadline")),
        retention=checked_duration("retention", options.get("retention")),
        location=location,
        module=module,
    )
