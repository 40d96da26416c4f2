"""F6, F14, F15, F22, U4: what maps, reduces, inline and atomic steps look like, and how far a map is."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from catbird_django import Flow, ItemError
from catbird_django.monitoring.graph.flow_view import view_of_flow
from catbird_django.monitoring.graph.layout import Direction
from catbird_django.monitoring.graph.mermaid import render_mermaid
from catbird_django.monitoring.graph.svg import render_svg
from catbird_django.monitoring.graph.view import EdgeKind, Form, GraphView, ItemCounts, NodeView, Status
from tests.unit.monitoring.graph.test_svg import parsed, step, texts, title

STEPS = ("rows", "check", "book", "total", "wording", "keep")

FLOWCHART = """\
flowchart LR
    flow_start(["start"])
    step_rows[["rows<br/>map"]]
    step_check[["check<br/>map<br/>any of its items may fail"]]
    step_book[["book<br/>atomic map<br/>2 of its items may fail"]]
    step_total[\\"total<br/>reduce"/]
    step_wording("wording<br/>inline step")
    step_keep[("keep<br/>atomic step")]
    flow_end(["end"])
    flow_start ==>|"item by item"| step_rows
    step_rows ==>|"item by item"| step_check
    step_check ==>|"item by item"| step_book
    step_book ==>|"item by item"| step_total
    step_total --> step_wording
    step_wording --> step_keep
    step_keep --> flow_end
"""


@pytest.fixture
def flow() -> Flow[list[int], int]:
    flow: Flow[list[int], int] = Flow("invoices", input=list[int])

    @flow.map(over="input")
    def rows(item: int) -> int:
        return item

    @flow.map(over="rows", on_item_failure="collect")
    def check(item: int) -> int:
        return item

    @flow.map(over="check", tolerate=2, atomic=True)
    def book(item: int | ItemError) -> int:
        return 0

    @flow.reduce(over="book", initial=0)
    def total(acc: int, item: int | ItemError) -> int:
        return acc

    @flow.step(inline=True)
    def wording(total: int) -> str:
        return ""

    @flow.step(atomic=True)
    def keep(wording: str) -> int:
        return 0

    return flow


def view_of(flow: Flow[list[int], int], **counts: ItemCounts) -> GraphView:
    """The flow; with counts, a run of it in which these maps are so far."""
    statuses = {name: Status(name="started", label="started", items=counts.get(name)) for name in STEPS}
    return view_of_flow(flow.definition.plan, statuses=statuses if counts else None)


def node(view: GraphView, name: str) -> NodeView:
    return next(node for node in view.nodes if node.id == name)


def bars(picture: ET.Element, name: str) -> dict[str, float]:
    """How wide each part of the bar is."""
    [drawn] = [one for one in step(picture, name).iter() if one.get("class") == "graph-items"]
    return {one.attrib["class"]: float(one.attrib["width"]) for one in drawn if "width" in one.attrib}


def test_every_kind_of_step_has_a_form_and_says_in_words_what_it_is(flow: Flow[list[int], int]) -> None:
    view = view_of(flow)

    assert [(node(view, name).form, node(view, name).kind) for name in STEPS] == [
        (Form.STACK, "map"),
        (Form.STACK, "map"),
        (Form.STACK, "atomic map"),
        (Form.FUNNEL, "reduce"),
        (Form.SLIP, "inline step"),
        (Form.CARD, "atomic step"),
    ]
    assert "map: runs once for each item of the flow's input" in node(view, "rows").tooltip
    assert "reduce: takes each item of book, one after the other" in node(view, "total").tooltip
    assert "inline: runs together with the step before it" in view.description
    assert "2 of its items may fail" in view.description


def test_a_list_that_is_gone_over_leads_there_as_a_thick_line(flow: Flow[list[int], int]) -> None:
    by_items = [edge.target for edge in view_of(flow).edges if edge.kind is EdgeKind.ITEMS]

    assert by_items == ["rows", "check", "book", "total"]


def test_a_flowchart_has_a_shape_for_each_kind(flow: Flow[list[int], int]) -> None:
    """X3."""
    assert render_mermaid(view_of(flow)) == FLOWCHART


def test_the_forms_are_drawn_and_the_marks_need_no_colour(flow: Flow[list[int], int]) -> None:
    picture = parsed(render_svg(view_of(flow)))

    def classes(name: str) -> list[str]:
        return [one.get("class") or "" for one in step(picture, name).iter()]

    assert classes("rows").count("graph-card graph-sheet") == 2
    assert classes("book").count("graph-inner") == 1
    assert [classes(name).count("graph-icon graph-mark") for name in STEPS] == [1, 1, 2, 1, 1, 1]
    assert [one for one in step(picture, "total") if one.tag.endswith("path") and one.get("class") == "graph-card"]
    assert "inline: runs together with the step before it" in title(step(picture, "wording"))


def test_a_slip_is_lower_than_a_card_whichever_way_the_picture_leads(flow: Flow[list[int], int]) -> None:
    for direction in Direction:
        picture = parsed(render_svg(view_of(flow), direction=direction))
        heights = {
            name: float(next(one.attrib["height"] for one in step(picture, name) if one.get("class") == "graph-card"))
            for name in ("wording", "keep")
        }
        assert heights["wording"] < heights["keep"]


def test_a_map_of_a_run_says_how_many_of_its_items_have_ended(flow: Flow[list[int], int]) -> None:
    """U4."""
    words = "50,000 / 100,000, 1 failed, 25,000 canceled"
    counts = ItemCounts(spawned=100_000, completed=50_000, failed=1, canceled=25_000, text=words)

    picture = parsed(render_svg(view_of(flow, rows=counts, check=ItemCounts(text="no items yet"))))

    assert texts(step(picture, "rows"))[-1] == "50,000 / 100,000, 1 failed…"
    assert title(step(picture, "rows")).endswith(f"\n{words}")
    assert bars(picture, "rows") == {"graph-track": 52, "graph-bad": 2, "graph-good": 26, "graph-quiet": 13}
    assert texts(step(picture, "check"))[-1] == "no items yet"
    assert bars(picture, "check") == {"graph-track": 52}


def test_nothing_moves_while_items_end(flow: Flow[list[int], int]) -> None:
    """U4."""
    pictures = [
        parsed(render_svg(view_of(flow, rows=counts)))
        for counts in (
            ItemCounts(),
            ItemCounts(spawned=100_000, completed=99_999, failed=1, text="99,999 / 100,000, 1 failed"),
        )
    ]

    places = [[one.get("transform") for one in picture if one.get("data-step")] for picture in pictures]
    assert places[0] == places[1]
    assert pictures[0].get("viewBox") == pictures[1].get("viewBox")
