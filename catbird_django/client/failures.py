"""What an `on_fail` task is told of the run that failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from catbird_django.codec import decode_any
from catbird_django.conf import get_settings
from catbird_django.definitions.registry import registry
from catbird_django.engine.flows import read_step_runs
from catbird_django.errors import UnknownName

I = TypeVar("I")  # noqa: E741 - as in Task[I, O]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """What went wrong at last."""

    type: str
    message: str
    traceback: str


@dataclass(frozen=True, kw_only=True)
class TaskFailure(Generic[I]):
    """A run that has failed for good: the input of the task named by `on_fail`.

    `TaskFailure[Order]` has the input as an Order; plain `TaskFailure` has it as JSON.
    """

    run_id: int
    task: str
    input: I
    error: RunFailure
    attempts: int
    """How often it was tried; 0 when its condition could not be decided."""


@dataclass(frozen=True, kw_only=True)
class FlowFailure(Generic[I]):
    """A run of a flow that has failed: the input of the task named by the flow's `on_fail`.

    `FlowFailure[Order]` has the input as an Order; plain `FlowFailure` has it as JSON.
    """

    run_id: int
    flow: str
    input: I
    step: str | None
    """The step that failed; None when the run did, as one that missed its deadline."""
    step_input: dict[str, Any]
    """What the failed step had received from others, by their names."""
    error: RunFailure

    def output_of(self, step: str) -> Any:
        """Read what a step of the run has returned; typed, where this process declares the flow.

        Raise UnknownName if there is no such step, or it has not completed.
        """
        states = {state.step: state for state in read_step_runs(self.run_id, using=get_settings().database)}
        state = states.get(step)
        if state is None or state.output is None:
            how = "is unknown" if state is None else f"has no output: it is {state.status}"
            raise UnknownName(f"step {step!r} of run {self.run_id} {how}")
        known = registry.flows.get(self.flow)
        definition = known.definition.steps.get(step) if known else None
        if definition is None:
            return decode_any(state.output, name=step)
        return definition.output_codec.decode(state.output, name=step)
