"""Takes the small jogs out of edges: moves what has room to, so that more of them lead straight on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from catbird_django.monitoring.graph.layers import LayeredGraph
from catbird_django.monitoring.graph.ordering import Order
from catbird_django.monitoring.graph.placing import Distances

ROUNDS = 6
PRICE_OF_A_JOG = 24.0  # an edge may be so much longer for being straight
LOOSENESS = 6.0  # things may stand so much closer together for it
STRAIGHT = 0.5
MOST_TRIED = 12

Run = Sequence[int]  # vertices that are moved together: one node, bends of a long edge, or all along a straight line


@dataclass(slots=True)
class Straightener:
    """Moves nodes and runs of bends to the heights of their neighbours, wherever that makes edges straighter."""

    graph: LayeredGraph
    places: list[float]
    neighbours: dict[int, tuple[int | None, int | None]]
    """Who stands on either side of each vertex, in its layer."""
    distances: Distances
    """How far apart two such must be, at least."""

    def straighten(self) -> list[float]:
        """Return the places after the last move that was for the better."""
        trunks = self._trunks()
        for _ in range(ROUNDS):
            moved = sum(self._improve([vertex]) for vertex in range(self.graph.real_count))
            moved += sum(self._improve(run) for trunk in trunks for run in list(self._movable_runs(trunk)))
            moved += sum(self._improve(line) for line in self._lines())
            if not moved:
                break
        return self.places

    def _trunks(self) -> list[list[int]]:
        """The bends of each long edge, or of several that share them; the longest first."""
        trunks: dict[int, list[int]] = {}
        for chain in self.graph.chains:
            bends = list(chain[1:-1])
            if bends and len(bends) > len(trunks.get(bends[0], ())):
                trunks[bends[0]] = bends
        return sorted(trunks.values(), key=len, reverse=True)

    def _movable_runs(self, trunk: Run) -> Iterator[Run]:
        """Cut a trunk into runs that have a height in common, as long as can be."""
        run: list[int] = []
        low, high = -inf, inf
        for bend in trunk:
            lower, upper = self._room(bend)
            if run and max(low, lower) > min(high, upper) + 2 * LOOSENESS:
                yield run
                run, low, high = [], -inf, inf
            run.append(bend)
            low, high = max(low, lower), min(high, upper)
        yield run

    def _lines(self) -> list[list[int]]:
        """Vertices that a straight line connects: one cannot leave it alone, but all of them may move."""
        line_of: dict[int, list[int]] = {}
        for vertex in (vertex for layer in self.graph.layers for vertex in layer):
            before = (one for one in self.graph.before[vertex] if self.places[one] == self.places[vertex])
            line = line_of[vertex] = line_of.get(next(before, -1), [])
            line.append(vertex)
        lines = {id(line): line for line in line_of.values() if len(line) > 1}
        return list(lines.values())

    def _room(self, vertex: int) -> tuple[float, float]:
        before, after = self.neighbours[vertex]
        low = -inf if before is None else self.places[before] + self.distances[before, vertex]
        high = inf if after is None else self.places[after] - self.distances[vertex, after]
        return low, high

    def _improve(self, run: Run) -> bool:
        """Move the run to the best height that it has room for; say whether it moved."""
        rooms = [self._room(vertex) for vertex in run]
        wanted = [self.places[vertex] for vertex in (*run, *(end for _, end in self._edges_out_of(run)))]
        heights = _heights(wanted, max(low for low, _ in rooms), min(high for _, high in rooms))
        price, height = min(((self._price_at(run, height), height) for height in heights), default=(inf, 0.0))
        if price > self._price_now(run) - 1e-6:
            return False
        for vertex in run:
            self.places[vertex] = height
        return True

    def _price_at(self, run: Run, height: float) -> float:
        return sum(self._price(one, end, height - self.places[end]) for one, end in self._edges_out_of(run))

    def _price_now(self, run: Run) -> float:
        edges = [*pairwise(run), *self._edges_out_of(run)]
        return sum(self._price(one, end, self.places[one] - self.places[end]) for one, end in edges)

    def _price(self, one: int, other: int, across: float) -> float:
        """What is to be paid for an edge that leads so far across.

        A long edge should not jog on its way at all. At a node only a small jog is ugly: a large one is a branch, and
        a node in the middle of its branches should stay there.
        """
        distance = abs(across)
        if distance <= STRAIGHT:
            return distance
        is_on_its_way = self.graph.is_bend(one) and self.graph.is_bend(other)
        return distance + PRICE_OF_A_JOG if is_on_its_way else max(distance, PRICE_OF_A_JOG)

    def _edges_out_of(self, run: Run) -> list[tuple[int, int]]:
        """The edges between the run and what is not moved with it."""
        moved = frozenset(run)
        return [
            (vertex, end)
            for vertex in run
            for end in (*self.graph.before[vertex], *self.graph.after[vertex])
            if end not in moved
        ]


def _heights(wanted: Sequence[float], low: float, high: float) -> list[float]:
    """The heights to try: those wanted, or as near to them as there is room; the middle ones if there are many."""
    wanted = sorted(set(wanted))
    wanted = wanted[max(len(wanted) - MOST_TRIED, 0) // 2 :][:MOST_TRIED]
    exact = [height for height in wanted if low - LOOSENESS <= height <= high + LOOSENESS]
    return exact + ([min(max(height, low), high) for height in wanted] if low <= high else [])


def straighten(graph: LayeredGraph, order: Order, places: Sequence[float], distances: Distances) -> list[float]:
    """Straighten edges, keeping the order, and the distances up to a little looseness."""
    neighbours: dict[int, tuple[int | None, int | None]] = {}
    for layer in order:
        padded = [None, *layer, None]
        for place, vertex in enumerate(layer):
            neighbours[vertex] = (padded[place], padded[place + 2])
    return Straightener(graph, list(places), neighbours, distances).straighten()
