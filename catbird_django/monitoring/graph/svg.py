"""Draws a flow as SVG: without script, without inline style, its looks in classes.

A page shows `render_svg()` with `catbird/graph.css`, and may patch `data-status`, the icon and the label of a step
while a run goes on. `render_svg_file()` carries its style sheet with it.
"""

from __future__ import annotations

from catbird_django.monitoring.graph.card import SMALL_SIZE, draw_node, draw_symbols, size_of
from catbird_django.monitoring.graph.edge import draw_edge, draw_legend, legend_size
from catbird_django.monitoring.graph.layout import Direction, Layout, Link, Node, lay_out
from catbird_django.monitoring.graph.view import EdgeKind, Form, GraphView, NodeView, Shape
from catbird_django.monitoring.graph.xml_text import Attribute, Xml, element, number

SHRINKABLE = 1100  # a wider picture would have to be shrunk so far that its words could not be read


def render_svg(view: GraphView, *, direction: Direction = Direction.LEFT_TO_RIGHT) -> str:
    """Draw for a page that has the style sheet. Everything in it is escaped."""
    return str(_render(view, direction))


def render_svg_file(view: GraphView, *, stylesheet: str, direction: Direction = Direction.LEFT_TO_RIGHT) -> str:
    """Draw a file that stands alone: with its style sheet, and a background of its own."""
    style = element("style", {}, f":root {{ color-scheme: light dark; }}\n{stylesheet}")
    background = element("rect", {"class": "graph-canvas", "width": "100%", "height": "100%", "fill": "none"})
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_render(view, direction, style, background)}\n'


def _render(view: GraphView, direction: Direction, *first: Xml) -> Xml:
    layout = lay_out(
        [_as_node(node) for node in view.nodes],
        [Link(source=edge.source, target=edge.target, kind=edge.kind) for edge in view.edges],
        direction=direction,
    )
    return element(
        "svg",
        _root_attributes(view, layout),
        element("title", {}, view.title),
        element("desc", {}, view.description),
        *first,
        *([draw_symbols()] if any(node.status for node in view.nodes) else []),
        *_edges(view, layout, direction),
        *(draw_node(node, layout.boxes[node.id]) for node in view.nodes),
        *draw_legend(view.edges, layout.height),
    )


def _root_attributes(view: GraphView, layout: Layout) -> dict[str, Attribute]:
    legend_width, legend_height = legend_size(view.edges)
    width, height = max(layout.width, legend_width), layout.height + legend_height
    return {
        "xmlns": "http://www.w3.org/2000/svg",
        "class": "catbird-graph graph-shrinks" if width <= SHRINKABLE else "catbird-graph",
        "viewBox": f"0 0 {number(width)} {number(height)}",
        "width": width,
        "height": height,
        "role": "img",
        "aria-label": view.title,
        "direction": "ltr",
        "font-family": "sans-serif",
        "font-size": SMALL_SIZE,
    }


def _as_node(node: NodeView) -> Node:
    width, height = size_of(node)
    return Node(
        id=node.id, width=width, height=height, stretches=node.shape is Shape.STEP and node.form is not Form.SLIP
    )


def _edges(view: GraphView, layout: Layout, direction: Direction) -> list[Xml]:
    """The edges, the plainest last: where some share their way, the unbroken line is on top."""
    drawn = [
        (edge.kind, draw_edge(edge, route, direction)) for edge, route in zip(view.edges, layout.routes, strict=True)
    ]
    return [xml for _, xml in sorted(drawn, key=lambda one: one[0] is EdgeKind.NEEDED)]
