"""DJANGO.md's layered layout, as it is promised: nothing overlaps, edges lead on and around, always the same."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations, pairwise

import pytest
from hypothesis import given

from catbird_django.monitoring.graph.layout import Box, Direction, Layout, Link, Node, Point, lay_out
from tests.unit.monitoring.graph.graphs import DIRECTIONS, Graph, graphs, laid_out, looked_at_often, random_graph


def boxes_overlap(one: Box, other: Box) -> bool:
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


def box_around(start: Point, end: Point) -> Box:
    """What a part of a route stays within: its curves leave and arrive along the direction."""
    (left, right), (top, bottom) = sorted((start[0], end[0])), sorted((start[1], end[1]))
    return Box(left, top, right - left + 0.01, bottom - top + 0.01)


def layer_numbers(layout: Layout) -> dict[str, int]:
    return {name: number for number, layer in enumerate(layout.layers) for name in layer}


@looked_at_often
@given(graph=graphs(), direction=DIRECTIONS)
def test_no_node_lies_on_another(graph: Graph, direction: Direction) -> None:
    layout = lay_out(*graph, direction=direction)

    assert [pair for pair in combinations(layout.boxes.values(), 2) if boxes_overlap(*pair)] == []


@looked_at_often
@given(graph=graphs(), direction=DIRECTIONS)
def test_every_edge_leads_to_a_later_layer(graph: Graph, direction: Direction) -> None:
    layout = lay_out(*graph, direction=direction)

    number_of = layer_numbers(layout)
    assert number_of.keys() == {node.id for node in graph[0]}
    assert all(number_of[link.source] < number_of[link.target] for link in graph[1])


@looked_at_often
@given(graph=graphs(), direction=DIRECTIONS)
def test_routes_begin_and_end_at_the_sides_of_their_nodes(graph: Graph, direction: Direction) -> None:
    layout = lay_out(*graph, direction=direction)

    for link, route in zip(graph[1], layout.routes, strict=True):
        source, target = layout.boxes[link.source], layout.boxes[link.target]
        if direction is Direction.LEFT_TO_RIGHT:
            assert route[0] == (source.x + source.width, source.y + source.height / 2)
            assert route[-1] == (target.x, target.y + target.height / 2)
        else:
            assert route[0] == (source.x + source.width / 2, source.y + source.height)
            assert route[-1] == (target.x + target.width / 2, target.y)


@looked_at_often
@given(graph=graphs(), direction=DIRECTIONS)
def test_no_edge_leads_through_a_node(graph: Graph, direction: Direction) -> None:
    layout = lay_out(*graph, direction=direction)

    for link, route in zip(graph[1], layout.routes, strict=True):
        others = [box for name, box in layout.boxes.items() if name not in (link.source, link.target)]
        parts = [box_around(*part) for part in pairwise(route)]
        assert not any(boxes_overlap(part, box) for part in parts for box in others)


@looked_at_often
@given(graph=graphs(), direction=DIRECTIONS)
def test_straight_parts_of_a_route_are_straight(graph: Graph, direction: Direction) -> None:
    layout = lay_out(*graph, direction=direction)

    across = 1 if direction is Direction.LEFT_TO_RIGHT else 0
    for route in layout.routes:
        assert len(route) % 2 == 0
        assert all(route[place][across] == route[place + 1][across] for place in range(0, len(route), 2))


@looked_at_often
@given(graph=graphs(), direction=DIRECTIONS)
def test_everything_is_inside_the_picture(graph: Graph, direction: Direction) -> None:
    layout = lay_out(*graph, direction=direction)

    corners = [
        (box.x + x * box.width, box.y + y * box.height) for box in layout.boxes.values() for x in (0, 1) for y in (0, 1)
    ]
    points = corners + [point for route in layout.routes for point in route]
    assert all(0 < x < layout.width and 0 < y < layout.height for x, y in points)


@looked_at_often
@given(graph=graphs(), direction=DIRECTIONS)
def test_the_same_graph_gives_the_same_picture(graph: Graph, direction: Direction) -> None:
    assert lay_out(*graph, direction=direction) == lay_out(*graph, direction=direction)


DRAWN_ELSEWHERE = """
from catbird_django.monitoring.graph.layout import Direction, lay_out
from tests.unit.monitoring.graph.graphs import random_graph
print(lay_out(*random_graph(30, seed=7), direction=Direction.LEFT_TO_RIGHT))
"""


def test_another_process_gives_the_same_picture() -> None:
    """Nothing in it depends on the order of sets."""
    drawn = {
        subprocess.run(
            [sys.executable, "-c", DRAWN_ELSEWHERE],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout.strip()
        for seed in ("1", "2")
    }

    assert drawn == {str(lay_out(*random_graph(30, seed=7), direction=Direction.LEFT_TO_RIGHT))}


def test_branches_lie_evenly_around_what_they_come_from_and_lead_to() -> None:
    layout = laid_out("a b", "a c", "b d", "c d")

    middle = {name: box.y + box.height / 2 for name, box in layout.boxes.items()}
    assert middle["a"] == middle["d"] == (middle["b"] + middle["c"]) / 2


@pytest.mark.parametrize("count", [2, 3, 12, 13])
def test_a_wide_fan_lies_evenly(count: int) -> None:
    names = [f"m{number:02}" for number in range(count)]
    layout = laid_out(*(f"a {name}" for name in names), *(f"{name} z" for name in names))

    heights = [layout.boxes[name].y for name in names]
    assert sorted(heights) == heights
    assert len({after - before for before, after in pairwise(heights)}) == 1
    assert layout.boxes["a"].y == layout.boxes["z"].y == pytest.approx(sum(heights) / count, abs=0.5)


def test_a_chain_is_a_line() -> None:
    layout = laid_out("a b", "b c", "c d")

    assert len({box.y for box in layout.boxes.values()}) == 1


def test_a_long_edge_is_straight_on_its_way() -> None:
    layout = laid_out("a b", "b c", "c d", "d e", "a e")

    assert len({y for _, y in layout.routes[-1][2:-2]}) == 1


def test_long_edges_of_one_source_share_their_way() -> None:
    layout = laid_out("a b", "b c", "c d", "d e", "a d", "a e")

    *_, shorter, longer = layout.routes
    assert longer[: len(shorter) - 3] == shorter[:-3]


def test_what_only_later_steps_need_stands_next_to_them() -> None:
    layout = laid_out("a b", "b c", "c d", "a r", "r d", "r e", "c e")

    assert layer_numbers(layout)["r"] == layer_numbers(layout)["c"]


def test_nodes_of_a_layer_are_equally_wide_if_they_stretch() -> None:
    nodes = [
        Node(id="wide", width=200, height=50),
        Node(id="slim", width=80, height=50),
        Node(id="fixed", width=60, height=20, stretches=False),
    ]

    boxes = lay_out(nodes, [], direction=Direction.LEFT_TO_RIGHT).boxes

    assert (boxes["wide"].width, boxes["slim"].width, boxes["fixed"].width) == (200, 200, 60)
    assert boxes["fixed"].x - boxes["wide"].x == 70


def test_top_down_leads_down() -> None:
    layout = laid_out("a b", "b c", direction=Direction.TOP_DOWN)

    assert layout.boxes["a"].y < layout.boxes["b"].y < layout.boxes["c"].y
    assert len({box.x for box in layout.boxes.values()}) == 1


def test_two_hundred_steps_are_laid_out() -> None:
    nodes, links = random_graph(200, seed=1)

    layout = lay_out(nodes, links, direction=Direction.LEFT_TO_RIGHT)

    assert len(layout.boxes) == 200
    assert [pair for pair in combinations(layout.boxes.values(), 2) if boxes_overlap(*pair)] == []


def test_an_empty_graph_is_an_empty_picture() -> None:
    layout = lay_out([], [], direction=Direction.LEFT_TO_RIGHT)

    assert (layout.boxes, layout.routes) == ({}, ())


@pytest.mark.parametrize("edges", [("a a",), ("a b", "b a"), ("a b", "b c", "c b")])
def test_a_circle_is_refused(edges: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="circle"):
        laid_out(*edges)


def test_an_edge_to_nowhere_is_refused() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        lay_out([Node(id="a", width=1, height=1)], [Link(source="a", target="nowhere")], direction=Direction.TOP_DOWN)
