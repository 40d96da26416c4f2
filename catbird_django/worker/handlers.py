"""Handlers, with everything needed to call them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from catbird_django.client.context import Reporter, TaskContext
from catbird_django.codec import Codec
from catbird_django.definitions.options import HandlerOptions
from catbird_django.definitions.registry import Registry
from catbird_django.definitions.retry import RetryPolicy
from catbird_django.definitions.task import TaskDefinition
from catbird_django.engine.steps import Claim
from catbird_django.engine.tasks import JsonText, TaskClaim
from catbird_django.errors import DefinitionError, UnknownName
from catbird_django.worker.channel import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler(ABC):
    """A function that claims are run with, looked up once."""

    what: ClassVar[str]
    """What it is the handler of, in words."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    retry: RetryPolicy
    options: HandlerOptions
    output_codec: Codec[Any]
    early_codec: Codec[Any] | None = None
    """Of what a flow returns that its handler ends early; None where there is no flow."""
    may_skip: bool = False
    is_map: bool = False
    """Whether what it runs are the items of a map."""
    is_atomic: bool = False
    """Whether it shares a transaction with its completion."""

    @property
    def is_isolated(self) -> bool:
        """Whether it runs in a process of its own."""
        return self.options.isolation == "process"

    @property
    def runs_on_loop(self) -> bool:
        """Whether it runs on the worker's event loop; otherwise one of the worker's threads is busy with it."""
        return self.is_async and not self.is_isolated

    @abstractmethod
    def arguments(self, claim: Any, reporter_for: Callable[[Any], Reporter]) -> list[Any]:
        """The arguments for a claim; raise PayloadError when a value does not fit its type (any more)."""

    def knowing(self, inline_steps: Collection[str]) -> Handler:  # noqa: ARG002
        """The same, where only these inline steps can be run after it."""
        return self

    def run_inline(self, claim: Claim, output: JsonText, *, max_payload: int) -> tuple[tuple[str, JsonText], ...]:  # noqa: ARG002
        """Run what is completed together with it; return what that gave, by name."""
        return ()

    def terms_for_another_process(self, claim: Claim) -> Message:  # noqa: ARG002
        """What another process must be told to run it for a claim, beside the claim."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHandler(Handler):
    """A task's function."""

    what = "task"

    takes_input: bool
    takes_context: bool
    input_codec: Codec[Any]

    def arguments(self, claim: TaskClaim, reporter_for: Callable[[TaskClaim], Reporter]) -> list[Any]:
        arguments: list[Any] = []
        if self.takes_input:
            arguments.append(self.input_codec.decode(claim.input, name="input"))
        if self.takes_context:
            arguments.append(self._context(claim, reporter_for(claim)))
        return arguments

    def _context(self, claim: TaskClaim, reporter: Reporter) -> TaskContext:
        return TaskContext(
            run_id=claim.run_id,
            task=self.name,
            queue=claim.queue,
            attempt=claim.attempt,
            headers=json.loads(claim.headers) if claim.headers else {},
            reporter=reporter,
        )


def build_handlers(definitions: Iterable[TaskDefinition], task_ids: dict[str, int]) -> dict[int, TaskHandler]:
    """Look up once what every claim of these tasks needs."""
    handlers = {}
    for definition in definitions:
        if definition.handler is None:
            continue
        handlers[task_ids[definition.name]] = TaskHandler(
            name=definition.name,
            function=definition.handler,
            is_async=definition.signature.is_async,
            takes_input=definition.signature.takes_input,
            takes_context=definition.signature.takes_context,
            retry=definition.retry,
            options=definition.how_to_run,
            input_codec=definition.input_codec,
            output_codec=definition.output_codec,
        )
    return handlers


def runnable_tasks(registry: Registry, names: Sequence[str] | None) -> list[TaskDefinition]:
    """The tasks to run: those with a handler here, or the named ones. Two of one name are refused."""
    if registry.conflicts:
        raise DefinitionError("; ".join(str(conflict) for conflict in registry.conflicts.values()))
    definitions = [definition for definition in registry.tasks.values() if definition.handler is not None]
    if names is None:
        return definitions
    known = {definition.name: definition for definition in definitions}
    if unknown := [name for name in names if name not in known]:
        raise UnknownName(f"no task named {unknown[0]!r} has a handler here (there are: {', '.join(sorted(known))})")
    return [known[name] for name in names]
