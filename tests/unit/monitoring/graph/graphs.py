"""Graphs without circles, made up by hypothesis, and what several tests ask of a picture."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st

from catbird_django.monitoring.graph.layout import Direction, Layout, Link, Node, lay_out

Graph = tuple[list[Node], list[Link]]

SIZES = [(20, 20), (45, 26), (120, 53), (161, 52), (240, 70), (90, 200)]
DIRECTIONS = st.sampled_from(list(Direction))


looked_at_often = settings(max_examples=60, deadline=None)


@st.composite
def graphs(draw: st.DrawFn, *, most: int = 12) -> Graph:
    """Nodes of all sizes, in an order that says nothing of the edges between them."""
    count = draw(st.integers(1, most))
    numbers = st.integers(0, count - 1)
    chosen = draw(st.lists(st.tuples(numbers, numbers, st.sampled_from(["needed", "order"])), max_size=3 * count))
    links = {(min(one, other), max(one, other)): kind for one, other, kind in chosen if one != other}
    names = draw(st.permutations([f"s{number}" for number in range(count)]))
    sizes = draw(st.lists(st.sampled_from(SIZES), min_size=count, max_size=count))
    nodes = [
        Node(id=f"s{number}", width=width, height=height, stretches=width > 50)
        for number, (width, height) in enumerate(sizes)
    ]
    return nodes, [Link(source=names[one], target=names[other], kind=kind) for (one, other), kind in links.items()]


def random_graph(count: int, *, seed: int) -> Graph:
    """A larger one: each node needs up to three of the twenty before it."""
    chance = random.Random(seed)
    nodes = [Node(id=f"s{number}", width=140, height=52) for number in range(count)]
    links = [
        Link(source=f"s{needed}", target=f"s{number}")
        for number in range(1, count)
        for needed in sorted(set(chance.choices(range(max(number - 20, 0), number), k=3)))
    ]
    return nodes, links


def of_names(*edges: str) -> Graph:
    """The graph of edges such as "a b", its nodes in alphabetical order, all of one size."""
    links = [Link(source=edge.split()[0], target=edge.split()[1]) for edge in edges]
    names = sorted({name for link in links for name in (link.source, link.target)})
    return [Node(id=name, width=100, height=50) for name in names], links


def laid_out(*edges: str, direction: Direction = Direction.LEFT_TO_RIGHT) -> Layout:
    return lay_out(*of_names(*edges), direction=direction)
