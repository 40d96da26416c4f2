"""Steps and what they need, as a graph: its order, its circles, its ends. Names only; nothing here is recursive."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping

Graph = Mapping[str, Collection[str]]
"""What each step needs, by name, in the order of definition. What is needed and is no step itself is left out."""


def sort_steps(graph: Graph) -> list[str]:
    """Put every step after what it needs, else in the order of definition; those in or behind a circle are left out."""
    places = {name: place for place, name in enumerate(graph)}
    missing = {name: len(_known(graph, name)) for name in graph}
    dependents = dependents_of(graph)
    ready = [places[name] for name in graph if not missing[name]]
    names, order = list(graph), []
    while ready:
        name = names[heapq.heappop(ready)]
        order.append(name)
        for dependent in dependents[name]:
            missing[dependent] -= 1
            if not missing[dependent]:
                heapq.heappush(ready, places[dependent])
    return order


def find_cycles(graph: Graph) -> list[list[str]]:
    """Name circles of steps that need each other, so that without them there is none; each in the order of its arrows.

    A step that needs itself is a circle of one.
    """
    cycles: list[list[str]] = []
    left = dict(graph)
    while stuck := left.keys() - sort_steps(left):
        cycle = _cycle_among({name: needed for name, needed in left.items() if name in stuck})
        cycles.append(cycle)
        left = {name: needed for name, needed in left.items() if name not in cycle}
    return cycles


def _cycle_among(stuck: Graph) -> list[str]:
    """Walk backwards until a step is met again: each of these needs another of them."""
    name = next(iter(stuck))
    met: dict[str, int] = {}
    while name not in met:
        met[name] = len(met)
        name = next(needed for needed in stuck[name] if needed in stuck)
    cycle = list(met)[met[name] :][::-1]
    first = min(cycle, key=list(stuck).index)
    return cycle[cycle.index(first) :] + cycle[: cycle.index(first)]


def final_steps(graph: Graph) -> list[str]:
    """The steps that nobody needs, not even for the order (F3a)."""
    dependents = dependents_of(graph)
    return [name for name in graph if not dependents[name]]


def dependents_of(graph: Graph) -> dict[str, list[str]]:
    """Who needs each step."""
    dependents: dict[str, list[str]] = {name: [] for name in graph}
    for name in graph:
        for needed in _known(graph, name):
            dependents[needed].append(name)
    return dependents


def _known(graph: Graph, name: str) -> set[str]:
    return {needed for needed in graph[name] if needed in graph}
