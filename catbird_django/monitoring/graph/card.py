"""Draws one node: a card with the step's name, its kind or status, and its badges; a pill for start and end.

A card's size does not depend on its status, so that nothing moves while a run goes on.
"""

from __future__ import annotations

from catbird_django.monitoring.graph.layout import Box
from catbird_django.monitoring.graph.text_width import shortened, width_of
from catbird_django.monitoring.graph.view import Badge, BadgeKind, NodeView, Shape
from catbird_django.monitoring.graph.xml_text import Attribute, Xml, element
from catbird_django.monitoring.icons import ARROW_ROUND, DIAMOND, FLAG, HOURGLASS, PERSON, STATUS_ICONS

NAME_SIZE = 14.0  # of the font, as in graph.css
SMALL_SIZE = 11.0

PADDING = 12.0
NAME_LINE = 22.0  # baselines, from the card's upper border
SECOND_LINE = 40.0
THIRD_LINE = 58.0
HEIGHT_OF_TWO_LINES = 52.0
HEIGHT_OF_THREE_LINES = 70.0
PILL_HEIGHT = 26.0
SMALLEST_WIDTH = 120.0
ROOM_FOR_TEXT = 240.0
ROOM_FOR_STATUS = 152.0  # "waiting for dependencies"
ICON = 12.0
ICON_GAP = 4.0
BADGE_GAP = 10.0

# How it looks to a program that has no style sheet, or does not understand ours.
_LINES: dict[str, Attribute] = {"fill": "none", "stroke": "currentColor"}

BADGE_ICONS = {
    BadgeKind.CONDITION: DIAMOND,
    BadgeKind.SIGNAL: PERSON,
    BadgeKind.RETRIES: ARROW_ROUND,
    BadgeKind.DELAY: HOURGLASS,
    BadgeKind.DEADLINE: FLAG,
}


def size_of(node: NodeView) -> tuple[float, float]:
    """How wide and how high the node must be for what it says."""
    if node.shape is not Shape.STEP:
        return width_of(_pill_text(node), SMALL_SIZE) + 2 * PADDING, PILL_HEIGHT
    name_width = width_of(_fitting_name(node), NAME_SIZE, is_bold=True)
    lines = [name_width, _width_of_second_line(node), *(map(_badge_width, _wide_badges(node)))]
    height = HEIGHT_OF_THREE_LINES if _wide_badges(node) else HEIGHT_OF_TWO_LINES
    return max(SMALLEST_WIDTH, round(max(lines) + 2 * PADDING)), height


def draw_node(node: NodeView, box: Box) -> Xml:
    """Draw the node into its box."""
    is_step = node.shape is Shape.STEP
    return element(
        "g",
        {
            "class": f"graph-node graph-{node.shape}{' graph-asks' if node.asks else ''}",
            "data-step": node.id if is_step else None,
            "data-status": node.status.name if node.status else None,
            "transform": f"translate({box.x:g} {box.y:g})",
        },
        element("title", {}, "\n".join((node.label, *node.tooltip, *(badge.meaning for badge in node.badges)))),
        *(_card(node, box) if is_step else _pill(node, box)),
    )


def draw_symbols() -> Xml:
    """The icons of all statuses, by id, so that a page can change one by changing a reference."""
    return element(
        "defs",
        {},
        *(
            element("symbol", {"id": symbol_id(status), "viewBox": "0 0 16 16"}, element("path", {**_LINES, "d": path}))
            for status, path in STATUS_ICONS.items()
        ),
    )


def symbol_id(status: str) -> str:
    """The id of a status's icon."""
    return f"catbird-status-{status}"


def _pill(node: NodeView, box: Box) -> list[Xml]:
    middle = box.height / 2
    return [
        element("rect", {**_LINES, "class": "graph-pill", "width": box.width, "height": box.height, "rx": middle}),
        _text("graph-small", box.width / 2, middle + 4, _pill_text(node), anchor="middle"),
    ]


def _card(node: NodeView, box: Box) -> list[Xml]:
    right = box.width - PADDING
    drawn = [
        element("rect", {**_LINES, "class": "graph-card", "width": box.width, "height": box.height, "rx": 8}),
        _text("graph-name", PADDING, NAME_LINE, _fitting_name(node)),
        *_kind_or_status(node),
    ]
    for badge in reversed(_small_badges(node)):
        right -= _badge_width(badge)
        drawn.append(_badge(badge, right, SECOND_LINE))
        right -= BADGE_GAP
    drawn += [_badge(badge, PADDING, THIRD_LINE) for badge in _wide_badges(node)]
    return drawn


def _kind_or_status(node: NodeView) -> list[Xml]:
    if node.status is None:
        return [_text("graph-small", PADDING, SECOND_LINE, node.kind)]
    label = shortened(node.status.label, ROOM_FOR_STATUS, SMALL_SIZE)
    href = f"#{symbol_id(node.status.name)}"
    place: dict[str, Attribute] = {"x": PADDING, "y": SECOND_LINE - 10, "width": ICON, "height": ICON}
    return [
        element("use", {"class": "graph-icon graph-status", "href": href, **place}),
        _text("graph-small graph-status", PADDING + ICON + ICON_GAP, SECOND_LINE, label),
    ]


def _badge(badge: Badge, x: float, line: float) -> Xml:
    scale = f"scale({ICON / 16:g})"
    path = element("path", {**_LINES, "class": "graph-icon", "transform": scale, "d": BADGE_ICONS[badge.kind]})
    return element(
        "g",
        {"class": f"graph-badge graph-{badge.kind}", "transform": f"translate({x:g} {line - 10:g})"},
        path,
        _text("graph-small", ICON + ICON_GAP, 10, _badge_text(badge)),
    )


def _text(css_class: str, x: float, y: float, text: str, *, anchor: str | None = None) -> Xml:
    return element("text", {"class": css_class, "x": x, "y": y, "text-anchor": anchor}, text)


def _wide_badges(node: NodeView) -> list[Badge]:
    """Badges with a line of their own: a condition tells more than its icon."""
    return [badge for badge in node.badges if badge.kind is BadgeKind.CONDITION]


def _small_badges(node: NodeView) -> list[Badge]:
    return [badge for badge in node.badges if badge.kind is not BadgeKind.CONDITION]


def _width_of_second_line(node: NodeView) -> float:
    start = width_of(node.kind, SMALL_SIZE) if node.status is None else ICON + ICON_GAP + ROOM_FOR_STATUS
    return start + sum(BADGE_GAP + _badge_width(badge) for badge in _small_badges(node))


def _badge_width(badge: Badge) -> float:
    return ICON + ICON_GAP + width_of(_badge_text(badge), SMALL_SIZE)


def _badge_text(badge: Badge) -> str:
    return shortened(badge.text, ROOM_FOR_TEXT - ICON - ICON_GAP, SMALL_SIZE)


def _fitting_name(node: NodeView) -> str:
    return shortened(node.label, ROOM_FOR_TEXT, NAME_SIZE, is_bold=True)


def _pill_text(node: NodeView) -> str:
    return shortened(node.label, ROOM_FOR_TEXT, SMALL_SIZE)
