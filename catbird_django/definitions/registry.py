"""Name to definition: what this process knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from catbird_django.definitions.flow import FlowDraft
from catbird_django.definitions.task import TaskDefinition
from catbird_django.errors import DefinitionError, UnknownName


class Declared(Protocol):
    """A task or a flow, as far as its name is concerned."""

    @property
    def name(self) -> str: ...
    @property
    def location(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two declarations of one name."""

    first: Declared
    second: Declared
    what: str = "task"

    def __str__(self) -> str:
        return (
            f"two {self.what}s are named {self.first.name!r}: {self.first.location} and {self.second.location}; "
            f"rename one" + (", or give it another name with @task(name=…)" if self.what == "task" else "")
        )


@dataclass(slots=True)
class Registry:
    """What was declared so far. Conflicts are kept, and reported by the checks and on first use."""

    tasks: dict[str, TaskDefinition] = field(default_factory=dict)
    conflicts: dict[str, Conflict] = field(default_factory=dict)
    flows: dict[str, FlowDraft] = field(default_factory=dict)
    flow_conflicts: dict[str, Conflict] = field(default_factory=dict)

    def add(self, definition: TaskDefinition) -> None:
        """Enter a task. A module that is imported again replaces its own."""
        known = self.tasks.get(definition.name)
        if known is not None and (not known.path or known.path != definition.path):
            self.conflicts.setdefault(definition.name, Conflict(known, definition))
            return
        self.tasks[definition.name] = definition

    def add_flow(self, flow: FlowDraft) -> None:
        """Enter a flow. A module that is imported again replaces its own: it declares it on the same line."""
        known = self.flows.get(flow.name)
        if known is not None and (known.module, known.location) != (flow.module, flow.location):
            self.flow_conflicts.setdefault(flow.name, Conflict(known, flow, "flow"))
            return
        self.flows[flow.name] = flow

    def task(self, name: str) -> TaskDefinition:
        """Return the task of that name; raise UnknownName if this process has none."""
        try:
            return self.tasks[name]
        except KeyError:
            raise UnknownName(f"no task named {name!r} is declared in this process") from None

    def flow(self, name: str) -> FlowDraft:
        """Return the flow of that name; raise UnknownName if this process has none."""
        try:
            return self.flows[name]
        except KeyError:
            raise UnknownName(f"no flow named {name!r} is declared in this process") from None

    def refuse_conflict(self, name: str) -> None:
        """Raise DefinitionError when two tasks claim this name."""
        if name in self.conflicts:
            raise DefinitionError(str(self.conflicts[name]))

    def refuse_flow_conflict(self, name: str) -> None:
        """Raise DefinitionError when two flows claim this name."""
        if name in self.flow_conflicts:
            raise DefinitionError(str(self.flow_conflicts[name]))

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """Forget, at the end of the block, what was declared in it. For tests."""
        tasks, conflicts = dict(self.tasks), dict(self.conflicts)
        flows, flow_conflicts = dict(self.flows), dict(self.flow_conflicts)
        try:
            yield
        finally:
            self.tasks, self.conflicts = tasks, conflicts
            self.flows, self.flow_conflicts = flows, flow_conflicts


registry = Registry()
