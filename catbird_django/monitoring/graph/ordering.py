"""Orders the vertices within each layer, so that few edges cross."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from itertools import pairwise

from catbird_django.monitoring.graph.layers import LayeredGraph

Order = list[list[int]]  # the vertices of each layer, from one side to the other

SWEEPS = 12
SWITCH_ROUNDS = 4


def order_layers(graph: LayeredGraph) -> Order:
    """Order each layer; never with more crossings than the order of the vertices' numbers has."""
    candidates = []
    for first in (_by_number(graph), _by_branches(graph)):
        order = _sweep(graph, first)
        _switch_neighbours(graph, order)
        candidates.append(order)
    return min(candidates, key=lambda order: count_crossings(graph, order))


def count_crossings(graph: LayeredGraph, order: Order) -> int:
    """Count how often two edges cross between neighbouring layers."""
    return sum(_crossings_between(graph, left, right) for left, right in pairwise(order) if left and right)


def _crossings_between(graph: LayeredGraph, left: Sequence[int], right: Sequence[int]) -> int:
    places = {vertex: place for place, vertex in enumerate(right)}
    crossings = 0
    met: list[int] = []  # ends of the edges so far, sorted
    for vertex in left:
        ends = sorted(places[end] for end in graph.after[vertex])
        crossings += sum(len(met) - bisect_right(met, end) for end in ends)
        for end in ends:
            insort(met, end)
    return crossings


def _by_number(graph: LayeredGraph) -> Order:
    return [sorted(layer) for layer in graph.layers]


def _by_branches(graph: LayeredGraph) -> Order:
    """As a walk along each branch to its end meets the vertices."""
    met: dict[int, None] = {}
    ahead = [vertex for layer in reversed(graph.layers) for vertex in reversed(layer) if not graph.before[vertex]]
    while ahead:
        vertex = ahead.pop()
        if vertex not in met:
            met[vertex] = None
            ahead.extend(reversed(graph.after[vertex]))
    places = {vertex: place for place, vertex in enumerate(met)}
    return [sorted(layer, key=places.__getitem__) for layer in graph.layers]


def _sweep(graph: LayeredGraph, first: Order) -> Order:
    """Move vertices to the middle of their neighbours, forth and back; return the best order that was met."""
    order, best = first, first
    fewest = count_crossings(graph, first)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        order = _swept(graph, order, forward=sweep % 2 == 0)
        crossings = count_crossings(graph, order)
        if crossings < fewest:
            best, fewest = order, crossings
    return [list(layer) for layer in best]


def _swept(graph: LayeredGraph, order: Order, *, forward: bool) -> Order:
    neighbours = graph.before if forward else graph.after
    swept = [list(layer) for layer in order]
    places: dict[int, int] = {}
    for layer in swept if forward else reversed(swept):
        centres = {
            vertex: _mean([places[one] for one in neighbours[vertex]], default=place)
            for place, vertex in enumerate(layer)
        }
        layer.sort(key=centres.__getitem__)  # stable: vertices that want the same place keep their order
        places = {vertex: place for place, vertex in enumerate(layer)}
    return swept


def _mean(values: Sequence[int], *, default: float) -> float:
    return sum(values) / len(values) if values else default


def _switch_neighbours(graph: LayeredGraph, order: Order) -> None:
    """Let two vertices that stand side by side change places wherever that saves crossings."""
    places = {vertex: place for layer in order for place, vertex in enumerate(layer)}
    for _ in range(SWITCH_ROUNDS):
        if not sum(_switch_in(graph, layer, places) for layer in order):
            break


def _switch_in(graph: LayeredGraph, layer: list[int], places: dict[int, int]) -> int:
    switched = 0
    for place in range(len(layer) - 1):
        one, other = layer[place], layer[place + 1]
        if _pair_crossings(graph, one, other, places) > _pair_crossings(graph, other, one, places):
            layer[place], layer[place + 1] = other, one
            places[one], places[other] = place + 1, place
            switched += 1
    return switched


def _pair_crossings(graph: LayeredGraph, one: int, other: int, places: dict[int, int]) -> int:
    """How often the edges of two vertices cross while the one stands before the other."""
    crossings = 0
    for neighbours in (graph.before, graph.after):
        ends = sorted(places[end] for end in neighbours[other])
        crossings += sum(_count_below(ends, places[end]) for end in neighbours[one])
    return crossings


def _count_below(ends: Sequence[int], place: int) -> int:
    return sum(end < place for end in ends)
