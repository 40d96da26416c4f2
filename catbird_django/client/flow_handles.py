"""A handle on one run of a flow: wait for its output, signal its steps, ask what it waits for."""

from __future__ import annotations

from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from catbird_django.client.cancel import cancel_flow
from catbird_django.client.explain import Requirement, explain
from catbird_django.client.handles import RunHandle, RunState
from catbird_django.client.rerun import rerun_flow
from catbird_django.client.signals import signal_flow
from catbird_django.definitions.flow import FlowDefinition
from catbird_django.definitions.options import Named
from catbird_django.engine.flows import read_flow_run, read_step_runs
from catbird_django.errors import FlowFailed, RunError
from catbird_django.statuses import FlowStatus, RunKind, StepStatus

O = TypeVar("O")  # noqa: E741 - as in Flow[I, O]


class FlowHandle(RunHandle[O]):
    """One run of a flow. A handle can be made again from the id of the run; its output is plain JSON then."""

    _kind = RunKind.FLOW

    def __init__(self, id: int, *, using: str | None = None, definition: FlowDefinition | None = None) -> None:
        super().__init__(id, using=using, definition=definition)
        self._flow = definition

    def status(self) -> FlowStatus:
        """Return how the run is now."""
        return FlowStatus(self._read().status)

    def steps(self) -> dict[str, StepStatus]:
        """Return how each step is now, by name, in an order in which they can run."""
        self._read()
        return {state.step: StepStatus(state.status) for state in read_step_runs(self.id, using=self._using)}

    def signal(self, step: str | Named, payload: Any = None, *, actor: str = "", dedupe_id: str | None = None) -> None:
        """Give a step the signal that it waits for, or will wait for.

        The payload may be the typed value or its JSON form. Raise SignalRefused, with the verdict, when it does not
        count. The same `dedupe_id` again gets the first answer.
        """
        signal_flow(self.id, step, payload, actor=actor, dedupe_id=dedupe_id, using=self._using)

    def cancel(self, reason: str = "", *, actor: str = "") -> FlowStatus:
        """Cancel the run; return how it is afterwards.

        Steps that wait or are queued are canceled at once. With handlers running it is `canceling` until they have
        stopped. A run that has ended stays as it is.
        """
        return cancel_flow(self.id, reason=reason, actor=actor, using=self._using)

    def retry(self, *, actor: str = "") -> FlowHandle[O]:
        """Start a new run of the whole flow with the input and options of this one, which has ended; return its handle.

        It runs the flow as it is declared now, keeps the concurrency key (when a live run has that key, its handle is
        returned) and drops the idempotency key. Raise RunNotFinished if this run is live.
        """
        run_id = rerun_flow(self.id, actor=actor, using=self._using)
        return FlowHandle(run_id, using=self._using, definition=self._flow)

    def explain(self) -> list[Requirement]:
        """Say what each unfinished step waits for."""
        return explain(self.id, using=self._using)

    async def astatus(self) -> FlowStatus:
        """Async twin of `status`."""
        return await sync_to_async(self.status)()

    async def asteps(self) -> dict[str, StepStatus]:
        """Async twin of `steps`."""
        return await sync_to_async(self.steps)()

    async def asignal(
        self, step: str | Named, payload: Any = None, *, actor: str = "", dedupe_id: str | None = None
    ) -> None:
        """Async twin of `signal`."""
        await sync_to_async(self.signal)(step, payload, actor=actor, dedupe_id=dedupe_id)

    async def acancel(self, reason: str = "", *, actor: str = "") -> FlowStatus:
        """Async twin of `cancel`."""
        return await sync_to_async(self.cancel)(reason, actor=actor)

    async def aretry(self, *, actor: str = "") -> FlowHandle[O]:
        """Async twin of `retry`."""
        return await sync_to_async(self.retry)(actor=actor)

    async def aexplain(self) -> list[Requirement]:
        """Async twin of `explain`."""
        return await sync_to_async(self.explain)()

    def _find(self) -> RunState | None:
        return read_flow_run(self.id, using=self._using)

    def _failure(self, error: dict[str, Any]) -> RunError:
        step, message = error.get("step"), error.get("message", "")
        where = f"in step {step!r}: " if step else ""
        return FlowFailed(f"run {self.id} failed {where}{message}", run_id=self.id, error=error)
