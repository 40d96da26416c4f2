"""Puts the vertices of a graph without circles into layers, such that each edge leads to the very next one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge between two vertices, by number. Those of one source and bundle share their way as long as they can."""

    source: int
    target: int
    bundle: Hashable = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredGraph:
    """Vertices in layers. Those from `real_count` on are bends: they stand where a long edge passes a layer."""

    real_count: int
    layers: tuple[tuple[int, ...], ...]
    before: tuple[tuple[int, ...], ...]
    """The neighbours of each vertex in the layer before."""
    after: tuple[tuple[int, ...], ...]
    chains: tuple[tuple[int, ...], ...]
    """The vertices along each edge, in the order of the edges."""

    def is_bend(self, vertex: int) -> bool:
        return vertex >= self.real_count


def make_layers(count: int, edges: Sequence[Edge]) -> LayeredGraph:
    """Put `count` vertices into layers; raise ValueError if the edges form a circle."""
    layer_of = assign_layers(count, edges)
    bends: dict[tuple[int, Hashable, int], int] = {}
    chains = []
    for edge in edges:
        places = range(layer_of[edge.source] + 1, layer_of[edge.target])
        keys = [(edge.source, edge.bundle, place) for place in places]
        chains.append((edge.source, *(bends.setdefault(key, count + len(bends)) for key in keys), edge.target))
    return _connected(count, [*layer_of, *(place for _, _, place in bends)], tuple(chains))


def _connected(real_count: int, layer_of: list[int], chains: tuple[tuple[int, ...], ...]) -> LayeredGraph:
    layers: list[list[int]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    for vertex, place in enumerate(layer_of):
        layers[place].append(vertex)
    before: list[list[int]] = [[] for _ in layer_of]
    after: list[list[int]] = [[] for _ in layer_of]
    # Edges that share a part of their way have it once: a dict keeps the order, unlike a set.
    for start, end in dict.fromkeys(pair for chain in chains for pair in pairwise(chain)):
        after[start].append(end)
        before[end].append(start)
    return LayeredGraph(
        real_count=real_count,
        layers=tuple(map(tuple, layers)),
        before=tuple(map(tuple, before)),
        after=tuple(map(tuple, after)),
        chains=chains,
    )


def assign_layers(count: int, edges: Sequence[Edge]) -> list[int]:
    """Say for each vertex in which layer it is: as early as it can be, or later where that makes edges shorter."""
    after: list[list[int]] = [[] for _ in range(count)]
    in_count = [0] * count
    for edge in edges:
        after[edge.source].append(edge.target)
        in_count[edge.target] += 1
    order = _topological_order(after, in_count)
    layer_of = [0] * count
    for vertex in order:
        for target in after[vertex]:
            layer_of[target] = max(layer_of[target], layer_of[vertex] + 1)
    for vertex in reversed(order):
        if len(after[vertex]) > in_count[vertex]:
            layer_of[vertex] = min(layer_of[target] for target in after[vertex]) - 1
    return layer_of


def _topological_order(after: list[list[int]], in_count: list[int]) -> list[int]:
    missing = list(in_count)
    order = [vertex for vertex, count in enumerate(missing) if not count]
    for vertex in order:  # grows while we walk
        for target in after[vertex]:
            missing[target] -= 1
            if not missing[target]:
                order.append(target)
    if len(order) < len(after):
        raise ValueError("the edges of the graph form a circle")
    return order
