"""Name to definition: what this process knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from catbird_django.definitions.task import TaskDefinition
from catbird_django.errors import DefinitionError, UnknownName


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two declarations of one name."""

    first: TaskDefinition
    second: TaskDefinition

    def __str__(self) -> str:
        return (
            f"two tasks are named {self.first.name!r}: {self.first.location} and {self.second.location}; "
            f"rename one, or give it another name with @task(name=…)"
        )


@dataclass(slots=True)
class Registry:
    """The tasks that were declared so far. Conflicts are kept, and reported by the checks and on first use."""

    tasks: dict[str, TaskDefinition] = field(default_factory=dict)
    conflicts: dict[str, Conflict] = field(default_factory=dict)

    def add(self, definition: TaskDefinition) -> None:
        """Enter a task. A module that is imported again replaces its own."""
        known = self.tasks.get(definition.name)
        if known is not None and (not known.path or known.path != definition.path):
            self.conflicts.setdefault(definition.name, Conflict(known, definition))
            return
        self.tasks[definition.name] = definition

    def task(self, name: str) -> TaskDefinition:
        """Return the task of that name; raise UnknownName if this process has none."""
        try:
            return self.tasks[name]
        except KeyError:
            raise UnknownName(f"no task named {name!r} is declared in this process") from None

    def refuse_conflict(self, name: str) -> None:
        """Raise DefinitionError when two declarations claim this name."""
        if name in self.conflicts:
            raise DefinitionError(str(self.conflicts[name]))

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """Forget, at the end of the block, what was declared in it. For tests."""
        tasks, conflicts = dict(self.tasks), dict(self.conflicts)
        try:
            yield
        finally:
            self.tasks, self.conflicts = tasks, conflicts


registry = Registry()
