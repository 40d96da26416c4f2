"""Writes a flow as a Mermaid flowchart, for places that draw those: READMEs, merge requests, wikis."""

from __future__ import annotations

import re

from catbird_django.monitoring.graph.layout import Direction
from catbird_django.monitoring.graph.view import EdgeKind, EdgeView, Form, GraphView, NodeView, Shape

ARROWS = {EdgeKind.NEEDED: "-->", EdgeKind.OPTIONAL: "-->", EdgeKind.ORDER: "-.->", EdgeKind.ITEMS: "==>"}
BOXES = {Form.CARD: "[{}]", Form.STACK: "[[{}]]", Form.FUNNEL: "[\\{}/]", Form.SLIP: "({})"}
LINE_BREAK = "<br/>"

# Whatever Mermaid, the Markdown in it or the browser could take for more than a text: it is written by its number.
SPECIAL = re.compile(r"[^\w .,:()=+/-]")


def render_mermaid(view: GraphView, *, direction: Direction = Direction.LEFT_TO_RIGHT) -> str:
    """Write the flowchart, as text that ends with a line break."""
    ids = {node.id: _id(node) for node in view.nodes}
    lines = [f"flowchart {direction.upper()}"]
    lines += [f"    {ids[node.id]}{_box(node)}" for node in view.nodes]
    lines += [f"    {ids[edge.source]} {_arrow(edge)} {ids[edge.target]}" for edge in view.edges]
    return "\n".join(lines) + "\n"


def _id(node: NodeView) -> str:
    """An id that is no word of Mermaid's, such as `end`."""
    plain = re.sub(r"\W", "_", node.id, flags=re.ASCII)
    return f"step_{plain}" if node.shape is Shape.STEP else plain


def _box(node: NodeView) -> str:
    """The text in its shape: slanted if it waits for somebody; else a map has double sides, a reduce is a funnel, an
    inline step is round, and an atomic one a drum."""
    text = f'"{LINE_BREAK.join(map(_escaped, _lines(node)))}"'
    if node.shape is not Shape.STEP:
        return f"([{text}])"
    if node.asks:
        return f"[/{text}/]"
    return f"[({text})]" if node.is_atomic and node.form is Form.CARD else BOXES[node.form].format(text)


def _lines(node: NodeView) -> list[str]:
    status = [node.status.label] if node.status else []
    kind = [node.kind] if node.is_atomic or node.form is not Form.CARD else []
    return [node.label, *kind, *status, *(badge.meaning for badge in node.badges)]


def _arrow(edge: EdgeView) -> str:
    return ARROWS[edge.kind] + (f'|"{_escaped(edge.label)}"|' if edge.label else "")


def _escaped(text: str) -> str:
    return SPECIAL.sub(lambda found: f"#{ord(found[0])};", " ".join(text.split()))
