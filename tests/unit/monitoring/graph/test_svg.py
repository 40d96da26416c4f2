"""U8: pictures of flows are plain SVG: no script, no inline style, everything escaped, readable without colours."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import catbird_django
from catbird_django.monitoring.graph.layout import Direction
from catbird_django.monitoring.graph.svg import render_svg, render_svg_file
from catbird_django.monitoring.graph.view import (
    Badge,
    BadgeKind,
    EdgeKind,
    EdgeView,
    GraphView,
    NodeView,
    Shape,
    Status,
)
from catbird_django.monitoring.icons import STATUS_ICONS
from catbird_django.statuses import StepStatus

SVG = "{http://www.w3.org/2000/svg}"
STYLESHEET = (Path(catbird_django.__file__).parent / "static" / "catbird" / "graph.css").read_text()

CONDITION = Badge(kind=BadgeKind.CONDITION, text="pick.total gt 1000", meaning="only if pick.total gt 1000")
SIGNAL = Badge(kind=BadgeKind.SIGNAL, text="Approval", meaning="waits for a signal: Approval")
RETRIES = Badge(kind=BadgeKind.RETRIES, text="3", meaning="3 retries")

VIEW = GraphView(
    title="Flow order",
    description="2 steps.",
    nodes=(
        NodeView(id="flow:start", label="start", shape=Shape.START),
        NodeView(id="pick", label="pick", kind="step", tooltip=("Take it off the shelf.",), badges=(RETRIES,)),
        NodeView(id="ship", label="ship", kind="step", badges=(CONDITION, SIGNAL)),
        NodeView(id="flow:end", label="end", shape=Shape.END),
    ),
    edges=(
        EdgeView(source="flow:start", target="pick"),
        EdgeView(source="pick", target="ship", kind=EdgeKind.OPTIONAL, label="optional"),
        EdgeView(source="ship", target="flow:end"),
    ),
)

DANGEROUS = [
    "<script>alert(1)</script>",
    '"><svg onload="alert(1)">',
    "' onmouseover='alert(1)",
    "]]></title></svg><img src=x onerror=alert(1)>",
    "a & b &lt; c &#x3c;",
    "{{ settings.SECRET_KEY }}{% debug %}",
    "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe \N{HEBREW LETTER ALEF}",
    "null \x00 bell \x07 half \ud83d none \uffff",
]


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text.encode())


def in_run(view: GraphView, **statuses: str) -> GraphView:
    """The view with the statuses of its steps."""
    nodes = [
        replace(node, status=Status(name=statuses[node.id], label=statuses[node.id].replace("_", " ")))
        if node.id in statuses
        else node
        for node in view.nodes
    ]
    return replace(view, nodes=tuple(nodes))


def step(picture: ET.Element, name: str) -> ET.Element:
    [found] = [element for element in picture.iter(f"{SVG}g") if element.get("data-step") == name]
    return found


def title(element: ET.Element) -> str:
    return element.findtext(f"{SVG}title") or ""


def texts(element: ET.Element) -> list[str]:
    return [text.text or "" for text in element.iter(f"{SVG}text")]


def test_a_step_shows_its_name_kind_and_badges() -> None:
    ship = step(parsed(render_svg(VIEW)), "ship")

    assert texts(ship) == ["ship", "step", "Approval", "pick.total gt 1000"]
    icons = [g.get("class") for g in ship.iter(f"{SVG}g") if g.find(f"{SVG}path") is not None]
    assert icons == ["graph-badge graph-signal", "graph-badge graph-condition"]


def test_the_picture_says_what_it_shows_to_who_does_not_see_it() -> None:
    picture = parsed(render_svg(VIEW))

    assert (picture.get("role"), picture.get("aria-label"), title(picture)) == ("img", "Flow order", "Flow order")
    assert picture.findtext(f"{SVG}desc") == "2 steps."
    assert title(step(picture, "pick")).splitlines() == ["pick", "Take it off the shelf.", "3 retries"]


def test_broken_lines_are_explained() -> None:
    picture = parsed(render_svg(VIEW))

    [edge] = [g for g in picture if "graph-edge-optional" in (g.get("class") or "") and g.get("data-source")]
    [legend] = [g for g in picture if "graph-legend" in (g.get("class") or "")]
    assert (edge.get("data-source"), edge.get("data-target"), title(edge)) == ("pick", "ship", "optional")
    assert texts(legend) == ["optional"]


def test_there_is_no_legend_where_there_is_nothing_to_explain() -> None:
    plain = replace(VIEW, edges=tuple(EdgeView(source=edge.source, target=edge.target) for edge in VIEW.edges))

    assert "graph-legend" not in render_svg(plain)


def test_a_status_is_icon_word_and_attribute() -> None:
    """A page patches these three."""
    picture = parsed(render_svg(in_run(VIEW, pick="completed", ship="waiting_for_signal")))

    pick = step(picture, "pick")
    [icon] = pick.iter(f"{SVG}use")
    assert pick.get("data-status") == "completed"
    assert icon.get("href") == "#catbird-status-completed"
    assert "completed" in texts(pick)
    ids = {symbol.get("id") for symbol in picture.iter(f"{SVG}symbol")}
    assert {f"catbird-status-{status}" for status in StepStatus.values} <= ids


def test_every_status_of_a_step_has_an_icon() -> None:
    assert set(StepStatus.values) <= STATUS_ICONS.keys()


def test_nothing_moves_while_a_run_goes_on() -> None:
    """U4: a page may replace the picture, or patch it."""
    pictures = [
        re.sub(
            r'data-status="\w+"|#catbird-status-\w+|>[\w ]+</text>', "", render_svg(in_run(VIEW, pick=one, ship=other))
        )
        for one, other in [("waiting_for_dependencies", "waiting_for_signal"), ("failed", "canceled")]
    ]

    assert pictures[0] == pictures[1]


def test_the_longest_status_is_shown_in_full() -> None:
    label = str(StepStatus.WAITING_FOR_DEPENDENCIES.label)

    pick = step(parsed(render_svg(in_run(VIEW, pick=label))), "pick")

    assert label in texts(pick)


def test_a_page_gets_no_style_and_no_script() -> None:
    """U8: CSP-clean."""
    for element in parsed(render_svg(in_run(VIEW, pick="started"))).iter():
        assert element.tag not in (f"{SVG}style", f"{SVG}script")
        assert not [name for name in element.attrib if name == "style" or name.startswith("on")]


def test_a_file_brings_its_style_along() -> None:
    text = render_svg_file(VIEW, stylesheet=STYLESHEET)

    picture = parsed(text)
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n')
    assert STYLESHEET in (picture.findtext(f"{SVG}style") or "")
    assert "url(" not in text
    assert "@import" not in text
    assert [rect for rect in picture if rect.get("class") == "graph-canvas"]


def test_the_style_sheet_knows_every_variable_that_it_uses() -> None:
    assert set(re.findall(r"var\((--[\w-]+)\)", STYLESHEET)) <= set(re.findall(r"(--[\w-]+):", STYLESHEET))


@pytest.mark.parametrize("dangerous", DANGEROUS)
@pytest.mark.parametrize("in_file", [False, True])
def test_whatever_a_text_says_is_only_text(dangerous: str, in_file: bool) -> None:
    """RELIABILITY's stored XSS: labels, statuses, badges, tooltips, names and titles."""
    badges = tuple(Badge(kind=kind, text=dangerous, meaning=dangerous) for kind in BadgeKind)
    node = NodeView(
        id=dangerous,
        label=dangerous,
        kind=dangerous,
        badges=badges,
        tooltip=(dangerous,),
        status=Status(name=dangerous, label=dangerous),
    )
    other = NodeView(id="other", label=dangerous, shape=Shape.END)
    edge = EdgeView(source=dangerous, target="other", kind=EdgeKind.ORDER, label=dangerous)
    view = GraphView(title=dangerous, description=dangerous, nodes=(node, other), edges=(edge,))

    picture = parsed(render_svg_file(view, stylesheet=STYLESHEET) if in_file else render_svg(view))

    written = re.sub("[\x00\x07\ud83d\uffff]", "\N{REPLACEMENT CHARACTER}", dangerous)
    own = {"svg", "title", "desc", "style", "defs", "symbol", "g", "path", "rect", "text", "use"}
    assert {element.tag.removeprefix(SVG) for element in picture.iter()} <= own
    assert not [name for element in picture.iter() for name in element.attrib if name.startswith("on")]
    assert (picture.get("aria-label"), picture.findtext(f"{SVG}desc")) == (written, written)
    assert title(step(picture, written)).splitlines() == [written] * (2 + len(badges))


def test_a_long_name_is_shortened_but_told_in_full() -> None:
    name = "n" * 64
    view = replace(VIEW, nodes=(NodeView(id=name, label=name),), edges=())

    picture = parsed(render_svg(view))

    assert texts(step(picture, name))[0].endswith("…")
    assert title(step(picture, name)) == name
    assert float(picture.get("width") or 0) < 350


def test_texts_stay_left_to_right_on_pages_that_are_not() -> None:
    assert parsed(render_svg(VIEW)).get("direction") == "ltr"


@pytest.mark.parametrize("direction", list(Direction))
def test_heads_point_where_the_picture_leads(direction: Direction) -> None:
    picture = parsed(render_svg(VIEW, direction=direction))

    heads = [path.get("d") or "" for path in picture.iter(f"{SVG}path") if path.get("class") == "graph-head"]
    assert len(heads) == len(VIEW.edges)
    for head in heads:
        (x, y), *corners = [tuple(map(float, point.split())) for point in re.findall(r"[ML]([\d. -]+)", head)]
        along = 0 if direction is Direction.LEFT_TO_RIGHT else 1
        assert all(corner[along] == (x, y)[along] - 8 for corner in corners)


@pytest.mark.parametrize(("count", "shrinks"), [(2, True), (12, False)])
def test_only_a_picture_that_stays_readable_is_shrunk_to_its_page(count: int, shrinks: bool) -> None:
    nodes = tuple(NodeView(id=f"s{number}", label=f"s{number}", kind="step") for number in range(count))
    edges = tuple(EdgeView(source=f"s{number}", target=f"s{number + 1}") for number in range(count - 1))

    picture = ET.fromstring(render_svg(replace(VIEW, nodes=nodes, edges=edges)))

    assert ("graph-shrinks" in picture.attrib["class"]) is shrinks
