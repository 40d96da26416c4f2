"""Gives the ordered vertices of each layer their places across: near their neighbours, and none on top of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from catbird_django.monitoring.graph.layers import LayeredGraph
from catbird_django.monitoring.graph.ordering import Order

ROUNDS = 16

# How much a vertex insists on its wish. A bend insists on the height of the bend before it, so that long edges are
# straight; but gives way to a node, so that these stand in line.
WEIGHT_OF_NODE = 1.0
WEIGHT_OF_BEND = 0.4
WEIGHT_OF_STRAIGHTNESS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """How far apart things that stand side by side are, at least."""

    between_nodes: float
    around_bends: float


Distances = dict[tuple[int, int], float]  # between the middles of two that stand side by side, at least


def least_distances(graph: LayeredGraph, order: Order, sizes: Sequence[float], gaps: Gaps) -> Distances:
    """How far apart those that stand side by side must be."""
    distances = {}
    for one, other in (pair for layer in order for pair in pairwise(layer)):
        has_bend = graph.is_bend(one) or graph.is_bend(other)
        gap = gaps.around_bends if has_bend else gaps.between_nodes
        distances[one, other] = (sizes[one] + sizes[other]) / 2 + gap
    return distances


@dataclass(slots=True)
class _Block:
    """Neighbours that stand as close as they may: they move as one."""

    place: float
    weight: float
    count: int


class Placer:
    """Moves vertices to the middle of their neighbours, layer by layer, until the edges are short."""

    def __init__(self, graph: LayeredGraph, order: Order, distances: Distances) -> None:
        self._graph = graph
        self._order = order
        self._offsets = [
            list(accumulate((distances[pair] for pair in pairwise(layer)), initial=0.0))[: len(layer)]
            for layer in order
        ]
        self._places = [0.0] * len(graph.before)
        for layer, offsets in zip(order, self._offsets, strict=True):
            for vertex, offset in zip(layer, offsets, strict=True):
                self._places[vertex] = offset - offsets[-1] / 2

    def place(self) -> list[float]:
        """Return the middle of each vertex, from the best round."""
        best, shortest = list(self._places), self._cost()
        for round_ in range(ROUNDS):
            self._sweep(self._graph.before if round_ % 2 == 0 else self._graph.after, forward=round_ % 2 == 0)
            cost = self._cost()
            if cost < shortest - 1e-6:
                best, shortest = list(self._places), cost
        return best

    def _sweep(self, neighbours: Sequence[Sequence[int]], *, forward: bool) -> None:
        layers = list(zip(self._order, self._offsets, strict=True))
        for layer, offsets in layers if forward else reversed(layers):
            wishes = [self._wish(vertex, neighbours[vertex]) for vertex in layer]
            for vertex, place in zip(layer, closest_places(wishes, offsets), strict=True):
                self._places[vertex] = place

    def _wish(self, vertex: int, neighbours: Sequence[int]) -> tuple[float, float]:
        """Where a vertex would like to be, and how much it insists."""
        if not neighbours:
            return self._places[vertex], WEIGHT_OF_BEND
        middle = _median([self._places[one] for one in neighbours])
        if not self._graph.is_bend(vertex):
            return middle, WEIGHT_OF_NODE
        return middle, WEIGHT_OF_STRAIGHTNESS if self._graph.is_bend(neighbours[0]) else WEIGHT_OF_BEND

    def _cost(self) -> float:
        """How far the edges lead across; between two bends it counts more."""
        return sum(
            abs(self._places[vertex] - self._places[end])
            * (4 if self._graph.is_bend(vertex) and self._graph.is_bend(end) else 1)
            for vertex in range(len(self._places))
            for end in self._graph.after[vertex]
        )


def closest_places(wishes: Sequence[tuple[float, float]], offsets: Sequence[float]) -> list[float]:
    """Places as near to the (weighted) wishes as can be, in order, and at least as far apart as the offsets are.

    It is the least sum of squares: neighbours whose wishes collide form a block around the mean of their wishes.
    """
    blocks: list[_Block] = []
    for (wish, weight), offset in zip(wishes, offsets, strict=True):
        blocks.append(_Block(wish - offset, weight, 1))
        while len(blocks) > 1 and blocks[-2].place > blocks[-1].place:
            last = blocks.pop()
            _join(blocks[-1], last)
    starts = [block.place for block in blocks for _ in range(block.count)]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]


def _join(block: _Block, other: _Block) -> None:
    weight = block.weight + other.weight
    block.place = (block.place * block.weight + other.place * other.weight) / weight
    block.weight = weight
    block.count += other.count


def _median(values: list[float]) -> float:
    values.sort()
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
