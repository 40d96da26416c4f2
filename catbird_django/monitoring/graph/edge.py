"""Draws edges as smooth lines with heads, and the legend that says what broken lines mean."""

from __future__ import annotations

from collections.abc import Sequence

from catbird_django.monitoring.graph.card import SMALL_SIZE
from catbird_django.monitoring.graph.layout import MARGIN, Direction, Point
from catbird_django.monitoring.graph.text_width import width_of
from catbird_django.monitoring.graph.view import EdgeKind, EdgeView
from catbird_django.monitoring.graph.xml_text import Xml, element, number

HEAD_LENGTH = 8.0
HEAD_WIDTH = 7.0

LEGEND_HEIGHT = 22.0
SAMPLE = 28.0  # length of a line in the legend
LEGEND_GAP = 22.0


def draw_edge(edge: EdgeView, route: Sequence[Point], direction: Direction) -> Xml:
    """Draw an edge along its route, with a head at the end."""
    return element(
        "g",
        {"class": f"graph-edge graph-edge-{edge.kind}", "data-source": edge.source, "data-target": edge.target},
        *([element("title", {}, edge.label)] if edge.label else []),
        _line(_path(route, direction)),
        element("path", {"class": "graph-head", "d": _head(route[-1], direction)}),
    )


def legend_size(edges: Sequence[EdgeView]) -> tuple[float, float]:
    """How much room the legend takes; nothing, if no edge needs one."""
    entries = _legend_entries(edges)
    if not entries:
        return 0.0, 0.0
    return 2 * MARGIN + sum(map(_entry_width, entries)) - LEGEND_GAP, LEGEND_HEIGHT


def draw_legend(edges: Sequence[EdgeView], top: float) -> list[Xml]:
    """Say below the picture what each kind of line means."""
    drawn, x, y = [], MARGIN, top + 2
    for edge in _legend_entries(edges):
        text = element("text", {"class": "graph-small", "x": x + SAMPLE + 8, "y": y + 4}, edge.label)
        sample = _line(f"M{number(x)} {number(y)}h{number(SAMPLE)}")
        drawn.append(element("g", {"class": f"graph-legend graph-edge-{edge.kind}"}, sample, text))
        x += _entry_width(edge)
    return drawn


def _legend_entries(edges: Sequence[EdgeView]) -> list[EdgeView]:
    """One edge of each kind that has a label."""
    first = {edge.kind: edge for edge in reversed(edges) if edge.label}
    return [first[kind] for kind in EdgeKind if kind in first]


def _entry_width(edge: EdgeView) -> float:
    return SAMPLE + 8 + width_of(edge.label, SMALL_SIZE) + LEGEND_GAP


def _line(path: str) -> Xml:
    return element("path", {"class": "graph-line", "fill": "none", "stroke": "currentColor", "d": path})


def _path(route: Sequence[Point], direction: Direction) -> str:
    """Straight and curved parts by turns; the curves leave and arrive in the direction of the picture."""
    *points, tip = route
    points.append(_before(tip, HEAD_LENGTH - 1, direction))
    parts = [f"M{_at(points[0])}"]
    for place in range(1, len(points)):
        here, there = points[place - 1], points[place]
        parts.append(f"L{_at(there)}" if place % 2 else _curve(here, there, direction))
    return "".join(parts)


def _curve(here: Point, there: Point, direction: Direction) -> str:
    if direction is Direction.LEFT_TO_RIGHT:
        middle = (here[0] + there[0]) / 2
        controls = ((middle, here[1]), (middle, there[1]))
    else:
        middle = (here[1] + there[1]) / 2
        controls = ((here[0], middle), (there[0], middle))
    return f"C{_at(controls[0])} {_at(controls[1])} {_at(there)}"


def _head(tip: Point, direction: Direction) -> str:
    x, y = _before(tip, HEAD_LENGTH, direction)
    half = HEAD_WIDTH / 2
    corners = ((x, y - half), (x, y + half)) if direction is Direction.LEFT_TO_RIGHT else ((x - half, y), (x + half, y))
    return f"M{_at(tip)}L{_at(corners[0])}L{_at(corners[1])}Z"


def _before(point: Point, distance: float, direction: Direction) -> Point:
    x, y = point
    return (x - distance, y) if direction is Direction.LEFT_TO_RIGHT else (x, y - distance)


def _at(point: Point) -> str:
    return f"{number(point[0])} {number(point[1])}"
