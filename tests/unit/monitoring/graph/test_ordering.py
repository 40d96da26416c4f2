"""Few crossings: counted right, and never more than there were."""

from __future__ import annotations

from itertools import combinations, pairwise, product

from hypothesis import given

from catbird_django.monitoring.graph.layers import Edge, LayeredGraph, make_layers
from catbird_django.monitoring.graph.ordering import Order, count_crossings, order_layers
from tests.unit.monitoring.graph.graphs import Graph, graphs, laid_out, looked_at_often


def layered(graph: Graph) -> LayeredGraph:
    numbers = {node.id: number for number, node in enumerate(graph[0])}
    return make_layers(len(numbers), [Edge(numbers[link.source], numbers[link.target], link.kind) for link in graph[1]])


def crossings_one_by_one(graph: LayeredGraph, order: Order) -> int:
    """Every pair of edges between two layers that change sides."""
    count = 0
    for left, right in pairwise(order):
        edges = [
            (left.index(start), right.index(end)) for start, end in product(left, right) if end in graph.after[start]
        ]
        count += sum((one[0] - other[0]) * (one[1] - other[1]) < 0 for one, other in combinations(edges, 2))
    return count


@looked_at_often
@given(graph=graphs())
def test_crossings_are_counted_as_one_would_by_hand(graph: Graph) -> None:
    layers = layered(graph)
    order = [sorted(layer) for layer in layers.layers]

    assert count_crossings(layers, order) == crossings_one_by_one(layers, order)


@looked_at_often
@given(graph=graphs())
def test_there_are_never_more_crossings_than_in_the_order_given(graph: Graph) -> None:
    layers = layered(graph)

    order = order_layers(layers)

    assert [sorted(layer) for layer in order] == [sorted(layer) for layer in layers.layers]
    assert count_crossings(layers, order) <= count_crossings(layers, [sorted(layer) for layer in layers.layers])


def test_edges_that_need_not_cross_do_not() -> None:
    assert laid_out("a z", "b y", "c x").crossing_count == 0
    assert laid_out("a m", "a n", "b l", "b k", "k y", "l y", "m x", "n x").crossing_count == 0


def test_where_a_crossing_cannot_be_avoided_there_is_one() -> None:
    assert laid_out("a x", "a y", "b x", "b y").crossing_count == 1


@looked_at_often
@given(graph=graphs())
def test_each_edge_leads_through_every_layer_between_its_ends(graph: Graph) -> None:
    layers = layered(graph)

    number_of = {vertex: number for number, layer in enumerate(layers.layers) for vertex in layer}
    for chain in layers.chains:
        assert [number_of[vertex] for vertex in chain] == list(range(number_of[chain[0]], number_of[chain[-1]] + 1))
        assert all(layers.is_bend(vertex) for vertex in chain[1:-1])
