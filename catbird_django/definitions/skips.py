"""Which steps may be skipped, and why (F11, F11a)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from catbird_django.definitions.graph import dependents_of
from catbird_django.definitions.step import StepDefinition
from catbird_django.errors import DefinitionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Skips:
    """Why a step may be skipped. With no reason at all it never is."""

    alone: tuple[str, ...]
    """Reasons after which its dependents run all the same, and so must do without its output."""
    with_dependents: tuple[str, ...]
    """Reasons after which the dependents that need its output are skipped too."""

    def __bool__(self) -> bool:
        return bool(self.alone or self.with_dependents)


def find_skips(steps: Mapping[str, StepDefinition]) -> dict[str, Skips]:
    """Say of each step why it may be skipped, by itself or because of what it needs."""
    found = {name: _own_skips(step) for name, step in steps.items()}
    for name, step in steps.items():
        # Without a list there are no items, so what goes over it is skipped with it, whatever the reason.
        if step.over in found and found[step.over].alone:
            found[name] = _with_reason(found[name], step.over)
    dependents = dependents_of({name: required_steps(step) for name, step in steps.items()})
    spreading = [name for name, skips in found.items() if skips.with_dependents]
    while spreading:
        skipped = spreading.pop()
        for name in dependents[skipped]:
            if not found[name].with_dependents:
                spreading.append(name)
            found[name] = _with_reason(found[name], skipped)
    return found


def _with_reason(skips: Skips, needed: str) -> Skips:
    reasons = dict.fromkeys([*skips.with_dependents, f"{needed!r}, which it needs, may be skipped"])
    return Skips(alone=skips.alone, with_dependents=tuple(reasons))


def _own_skips(step: StepDefinition) -> Skips:
    reasons: dict[str, list[str]] = {"skip": [], "skip_downstream": [], "fail": []}
    if step.condition is not None:
        reasons[step.on_unmet].append("its condition")
    reasons[step.on_exhausted].append(f"on_exhausted={step.on_exhausted!r}")
    if step.may_skip:
        reasons["skip"].append("may_skip=True")
    return Skips(alone=tuple(reasons["skip"]), with_dependents=tuple(reasons["skip_downstream"]))


def required_steps(step: StepDefinition) -> set[str]:
    """The steps without whose output it cannot run; none of a step whose types cannot be told."""
    try:
        return {
            dependency.step
            for dependency in step.dependencies
            if dependency.parameter is not None and not step.argument(dependency.parameter).is_optional
        }
    except DefinitionError:
        return set()
