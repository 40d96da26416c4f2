"""Draws one node: a card with the step's name, its kind or status, and its badges; a pill for start and end.

What the step does gives the card its form: a stack for a map, a funnel for a reduce, a slip for an inline step; and a
second border for an atomic one. A card's size does not depend on its status, so that nothing moves while a run goes on.
"""

from __future__ import annotations

from catbird_django.monitoring.graph.layout import Box
from catbird_django.monitoring.graph.text_width import shortened, width_of
from catbird_django.monitoring.graph.view import Badge, BadgeKind, Form, ItemCounts, NodeView, Shape
from catbird_django.monitoring.graph.xml_text import Attribute, Xml, element, number
from catbird_django.monitoring.icons import (
    ARROW_ROUND,
    BOLT,
    CYLINDER,
    DIAMOND,
    FLAG,
    HOURGLASS,
    PERSON,
    SHIELD,
    SIGMA,
    STACK,
    STATUS_ICONS,
)

NAME_SIZE = 14.0  # of the font, as in graph.css
SMALL_SIZE = 11.0

PADDING = 12.0
NAME_LINE = 22.0  # baselines, from the card's upper border
SECOND_LINE = 40.0
LINE = 18.0  # from each further baseline to the next
HEIGHT_OF_TWO_LINES = 52.0
SLIP_IS_LOWER = 6.0  # at the top and at the bottom
PILL_HEIGHT = 26.0
SMALLEST_WIDTH = 120.0
ROOM_FOR_TEXT = 240.0
ROOM_FOR_STATUS = 152.0  # "waiting for dependencies"
ROOM_FOR_ITEMS = 160.0  # "99,999 / 100,000, 3 failed"
BAR_WIDTH = 52.0
BAR_HEIGHT = 6.0
LEAST_BAR = 2.0  # one failed item of a thousand is worth seeing
ICON = 12.0
ICON_GAP = 4.0
BADGE_GAP = 10.0

STACKED = 4.0  # by how much each card of a stack lies below and beside the one on it
SHEETS = 2  # below the first
NOSE = 14.0  # of a funnel
ROUND = 8.0
INSET = 3.5  # of the second border

# How it looks to a program that has no style sheet, or does not understand ours.
_LINES: dict[str, Attribute] = {"fill": "none", "stroke": "currentColor"}

BADGE_ICONS = {
    BadgeKind.CONDITION: DIAMOND,
    BadgeKind.SIGNAL: PERSON,
    BadgeKind.TOLERANCE: SHIELD,
    BadgeKind.RETRIES: ARROW_ROUND,
    BadgeKind.DELAY: HOURGLASS,
    BadgeKind.DEADLINE: FLAG,
}

FORM_ICONS = {Form.STACK: STACK, Form.FUNNEL: SIGMA, Form.SLIP: BOLT}

_BESIDE = {Form.STACK: STACKED * SHEETS, Form.FUNNEL: NOSE}  # what a form takes at the end of the card
_BELOW = {Form.STACK: STACKED * SHEETS}
_PADDING = {Form.SLIP: 18.0}  # its ends are round


def size_of(node: NodeView) -> tuple[float, float]:
    """How wide and how high the node must be for what it says."""
    if node.shape is not Shape.STEP:
        return width_of(_pill_text(node), SMALL_SIZE) + 2 * PADDING, PILL_HEIGHT
    lines = [_width_of_first_line(node), _width_of_second_line(node), *(map(_badge_width, _wide_badges(node)))]
    if _items_of(node) is not None:
        lines.append(BAR_WIDTH + BADGE_GAP + ROOM_FOR_ITEMS)
    width = max(SMALLEST_WIDTH, round(max(lines) + 2 * _PADDING.get(node.form, PADDING))) + _BESIDE.get(node.form, 0.0)
    return width, _height_of_card(node) + _BELOW.get(node.form, 0.0)


def _height_of_card(node: NodeView) -> float:
    further = len(_wide_badges(node)) + (_items_of(node) is not None)
    lower = 2 * SLIP_IS_LOWER if node.form is Form.SLIP else 0.0
    return HEIGHT_OF_TWO_LINES + LINE * further - lower


def draw_node(node: NodeView, box: Box) -> Xml:
    """Draw the node into its box."""
    is_step = node.shape is Shape.STEP
    return element(
        "g",
        {
            "class": f"graph-node graph-{node.shape}{_looks(node)}",
            "data-step": node.id if is_step else None,
            "data-status": node.status.name if node.status else None,
            "transform": f"translate({box.x:g} {box.y:g})",
        },
        element("title", {}, "\n".join((node.label, *_told(node)))),
        *(_card(node, box) if is_step else _pill(node, box)),
    )


def _told(node: NodeView) -> list[str]:
    counts = _items_of(node)
    items = [] if counts is None else [counts.text]
    return [*node.tooltip, *(badge.meaning for badge in node.badges), *items]


def _looks(node: NodeView) -> str:
    form = "" if node.form is Form.CARD else f" graph-{node.form}"
    return form + " graph-atomic" * node.is_atomic + " graph-asks" * node.asks


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
    width, height = box.width - _BESIDE.get(node.form, 0.0), box.height - _BELOW.get(node.form, 0.0)
    lift = SLIP_IS_LOWER if node.form is Form.SLIP else 0.0
    left = _PADDING.get(node.form, PADDING)
    right = width - left
    drawn = [
        *_outline(node, width, height),
        _text("graph-name", left, NAME_LINE - lift, _fitting_name(node)),
        *_marks(node, right, NAME_LINE - lift),
        *_kind_or_status(node, left, SECOND_LINE - lift),
    ]
    for badge in reversed(_small_badges(node)):
        right -= _badge_width(badge)
        drawn.append(_badge(badge, right, SECOND_LINE - lift))
        right -= BADGE_GAP
    return [*drawn, *_further_lines(node)]


def _further_lines(node: NodeView) -> list[Xml]:
    drawn = [_badge(badge, PADDING, SECOND_LINE + LINE * place) for place, badge in enumerate(_wide_badges(node), 1)]
    counts = _items_of(node)
    return drawn if counts is None else [*drawn, _items(counts, SECOND_LINE + LINE * (len(drawn) + 1))]


def _outline(node: NodeView, width: float, height: float) -> list[Xml]:
    """The borders of the card, the lowest sheet of a stack first."""
    if node.form is Form.FUNNEL:
        return [element("path", {**_LINES, "class": "graph-card", "d": _funnel(width, height)})]
    radius = height / 2 if node.form is Form.SLIP else ROUND
    sheets = range(SHEETS * (node.form is Form.STACK), 0, -1)
    drawn = [_border("graph-card graph-sheet", sheet * STACKED, width, height, radius) for sheet in sheets]
    drawn.append(_border("graph-card", 0, width, height, radius))
    if node.is_atomic:
        inner = _border("graph-inner", INSET, width - 2 * INSET, height - 2 * INSET, radius - INSET)
        drawn.append(inner)
    return drawn


def _border(css_class: str, place: float, width: float, height: float, radius: float) -> Xml:
    corner: dict[str, Attribute] = {"x": place, "y": place} if place else {}
    size: dict[str, Attribute] = {"width": width, "height": height, "rx": radius}
    return element("rect", {**_LINES, "class": css_class, **corner, **size})


def _funnel(width: float, height: float) -> str:
    """A card whose end comes to a blunt point."""
    edge, tip, quarter = number(width), number(width + NOSE), number(height / 4)
    low, bottom = number(height * 3 / 4), number(height)
    return (
        f"M{number(ROUND)} 0H{edge}L{tip} {quarter}V{low}L{edge} {bottom}H{number(ROUND)}"
        f"Q0 {bottom} 0 {number(height - ROUND)}V{number(ROUND)}Q0 0 {number(ROUND)} 0Z"
    )


def _marks(node: NodeView, right: float, line: float) -> list[Xml]:
    """Icons for what kind of step it is, at the end of the line of its name."""
    scale = f"scale({ICON / 16:g})"
    return [
        element(
            "path",
            {
                **_LINES,
                "class": "graph-icon graph-mark",
                "transform": f"translate({right - (place + 1) * (ICON + ICON_GAP) + ICON_GAP:g} {line - 11:g}) {scale}",
                "d": icon,
            },
        )
        for place, icon in enumerate(_mark_icons(node))
    ]


def _mark_icons(node: NodeView) -> list[str]:
    form = [FORM_ICONS[node.form]] if node.form in FORM_ICONS else []
    return form + [CYLINDER] * node.is_atomic


def _items_of(node: NodeView) -> ItemCounts | None:
    return node.status.items if node.status else None


def _items(counts: ItemCounts, line: float) -> Xml:
    """How many items have ended: as a bar, and in words."""
    spawned = counts.spawned or 0
    parts = [("graph-bad", counts.failed), ("graph-good", counts.completed), ("graph-quiet", counts.canceled)]
    bars, x = [_bar("graph-track", PADDING, BAR_WIDTH, line)], PADDING
    for css_class, count in parts:
        width = max(BAR_WIDTH * count / spawned, LEAST_BAR) if count and spawned else 0.0
        bars += [_bar(css_class, x, width, line)] if width else []
        x += width
    text = shortened(counts.text, ROOM_FOR_ITEMS, SMALL_SIZE)
    label = _text("graph-small", PADDING + BAR_WIDTH + BADGE_GAP, line, text)
    return element("g", {"class": "graph-items"}, *bars, label)


def _bar(css_class: str, x: float, width: float, line: float) -> Xml:
    place: dict[str, Attribute] = {"x": x, "y": line - 7, "width": width, "height": BAR_HEIGHT}
    return element("rect", {**_LINES, "class": css_class, **place})


def _kind_or_status(node: NodeView, left: float, line: float) -> list[Xml]:
    if node.status is None:
        return [_text("graph-small", left, line, node.kind)]
    label = shortened(node.status.label, ROOM_FOR_STATUS, SMALL_SIZE)
    href = f"#{symbol_id(node.status.name)}"
    place: dict[str, Attribute] = {"x": left, "y": line - 10, "width": ICON, "height": ICON}
    return [
        element("use", {"class": "graph-icon graph-status", "href": href, **place}),
        _text("graph-small graph-status", left + ICON + ICON_GAP, line, label),
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


def _width_of_first_line(node: NodeView) -> float:
    marks = len(_mark_icons(node)) * (ICON + ICON_GAP)
    return width_of(_fitting_name(node), NAME_SIZE, is_bold=True) + (marks + BADGE_GAP if marks else 0.0)


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
