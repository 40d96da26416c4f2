"""Lays out a graph without circles in layers: where its nodes are, and which way its edges take.

Layers by the longest path (`layers.py`), few crossings (`ordering.py`), short edges (`placing.py`). Edges bend only in
the gaps between layers, where no node is. The same graph always gives the same picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from catbird_django.monitoring.graph.layers import Edge, LayeredGraph, make_layers
from catbird_django.monitoring.graph.ordering import count_crossings, order_layers
from catbird_django.monitoring.graph.placing import Gaps, Placer, least_distances
from catbird_django.monitoring.graph.straightening import straighten

Point = tuple[float, float]

MARGIN = 16.0
LANDING = 14.0  # of the gap before a layer: edges are straight there, for the arrow's head
BEND_SIZE = 2.0
STEEPNESS = 0.2  # of the way across, added to a gap that edges cross far
WIDEST_GAP = 150.0
NARROWEST_GAP: Mapping[str, float] = {"lr": 52.0, "td": 46.0}
GAPS: Mapping[str, Gaps] = {
    "lr": Gaps(between_nodes=22.0, around_bends=16.0),
    "td": Gaps(between_nodes=30.0, around_bends=22.0),
}


class Direction(StrEnum):
    """Where the edges lead: to the right, or down."""

    LEFT_TO_RIGHT = "lr"
    TOP_DOWN = "td"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What is to be placed. One that stretches is made as wide (or, top down, as high) as its layer."""

    id: str
    width: float
    height: float
    stretches: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An edge between two nodes. Links of one source and kind share their way as long as they can."""

    source: str
    target: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """Where a node is; x and y are its upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A picture without its looks. Each route begins and ends at a node's border, and is by turns straight and curved:
    straight from its first point to the second, curved to the third, straight to the fourth, and so on."""

    width: float
    height: float
    boxes: dict[str, Box]
    routes: tuple[tuple[Point, ...], ...]
    """In the order of the links."""
    layers: tuple[tuple[str, ...], ...]
    crossing_count: int


@dataclass(frozen=True, slots=True)
class _Span:
    """What a layer, or a node in it, takes up along the direction."""

    start: float
    end: float


def lay_out(nodes: Sequence[Node], links: Sequence[Link], *, direction: Direction) -> Layout:
    """Place the nodes and route the links; raise ValueError if these form a circle, KeyError for an unknown node."""
    numbers = {node.id: number for number, node in enumerate(nodes)}
    edges = [Edge(numbers[link.source], numbers[link.target], link.kind) for link in links]
    graph = make_layers(len(nodes), edges)
    order = order_layers(graph)
    sizes = [_across(node, direction) for node in nodes] + [BEND_SIZE] * (len(graph.before) - len(nodes))
    distances = least_distances(graph, order, sizes, GAPS[direction])
    places = straighten(graph, order, Placer(graph, order, distances).place(), distances)
    places = _from_margin(places, sizes)
    spans = _spans(graph, [_along(node, direction) for node in nodes], places, NARROWEST_GAP[direction])
    return _Picture(nodes, graph, direction, sizes, places, spans).layout(order)


def _across(node: Node, direction: Direction) -> float:
    return node.height if direction is Direction.LEFT_TO_RIGHT else node.width


def _along(node: Node, direction: Direction) -> float:
    return node.width if direction is Direction.LEFT_TO_RIGHT else node.height


def _from_margin(places: list[float], sizes: list[float]) -> list[float]:
    """Move all so that the first stands at the margin, on whole pixels: lines are sharp there."""
    first = min((place - size / 2 for place, size in zip(places, sizes, strict=True)), default=0.0)
    return [float(round(place - first + MARGIN)) for place in places]


def _spans(graph: LayeredGraph, lengths: list[float], places: list[float], narrowest: float) -> list[_Span]:
    """Where each layer is, along the direction. The further edges lead across, the wider is the gap before it."""
    spans: list[_Span] = []
    for layer in graph.layers:
        start = MARGIN
        if spans:
            furthest = max((abs(places[v] - places[one]) for v in layer for one in graph.before[v]), default=0.0)
            start = spans[-1].end + min(max(narrowest, narrowest * 0.7 + STEEPNESS * furthest), WIDEST_GAP)
        length = max((lengths[vertex] for vertex in layer if not graph.is_bend(vertex)), default=0.0)
        spans.append(_Span(round(start), round(start) + length))
    return spans


@dataclass(frozen=True, slots=True)
class _Picture:
    """Everything that is known once all is placed, along and across."""

    nodes: Sequence[Node]
    graph: LayeredGraph
    direction: Direction
    sizes: list[float]
    places: list[float]
    spans: list[_Span]

    def layout(self, order: list[list[int]]) -> Layout:
        end_along = max((span.end for span in self.spans), default=0.0) + MARGIN
        reach = (place + size / 2 for place, size in zip(self.places, self.sizes, strict=True))
        width, height = self._turned((end_along, max(reach, default=0.0) + MARGIN))
        span_of = self._span_of_vertices()
        return Layout(
            width=width,
            height=height,
            boxes={node.id: self._box(number, span_of[number]) for number, node in enumerate(self.nodes)},
            routes=tuple(self._route(chain, span_of) for chain in self.graph.chains),
            layers=tuple(
                tuple(self.nodes[vertex].id for vertex in layer if not self.graph.is_bend(vertex)) for layer in order
            ),
            crossing_count=count_crossings(self.graph, order),
        )

    def _span_of_vertices(self) -> list[tuple[_Span, _Span]]:
        """The span of each vertex itself, and that of its layer."""
        found = [(_Span(0, 0), _Span(0, 0))] * len(self.places)
        for layer, span in zip(self.graph.layers, self.spans, strict=True):
            for vertex in layer:
                found[vertex] = (self._own_span(vertex, span), span)
        return found

    def _own_span(self, vertex: int, layer: _Span) -> _Span:
        if self.graph.is_bend(vertex) or self.nodes[vertex].stretches:
            return layer
        length = _along(self.nodes[vertex], self.direction)
        start = (layer.start + layer.end - length) / 2
        return _Span(start, start + length)

    def _box(self, vertex: int, spans: tuple[_Span, _Span]) -> Box:
        own, _ = spans
        size = self.sizes[vertex]
        x, y = self._turned((own.start, self.places[vertex] - size / 2))
        width, height = self._turned((own.end - own.start, size))
        return Box(x, y, width, height)

    def _route(self, chain: Sequence[int], span_of: list[tuple[_Span, _Span]]) -> tuple[Point, ...]:
        points: list[Point] = []
        for one, other in pairwise(chain):
            (own, layer), (next_own, next_layer) = span_of[one], span_of[other]
            here, there = self.places[one], self.places[other]
            points += [(own.end, here)] if one == chain[0] else []
            points += [(layer.end, here), (next_layer.start - LANDING, there)]
            points += [(next_own.start, there)] if other == chain[-1] else []
        return tuple(map(self._turned, points))

    def _turned(self, point: Point) -> Point:
        """From along and across to x and y."""
        return point if self.direction is Direction.LEFT_TO_RIGHT else (point[1], point[0])
