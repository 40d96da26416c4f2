"""X3: a flow as the text of a Mermaid flowchart."""

from __future__ import annotations

import re

import pytest

from catbird_django.monitoring.graph.layout import Direction
from catbird_django.monitoring.graph.mermaid import render_mermaid
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

GOLDEN = """\
flowchart LR
    flow_start(["start"])
    step_pick["pick"]
    step_end[/"end<br/>waits for a signal: Approval"/]
    step_ship["ship<br/>3 retries"]
    flow_end(["end"])
    flow_start --> step_pick
    step_pick -->|"optional"| step_end
    step_pick -.->|"order only"| step_ship
    step_end --> step_ship
    step_ship --> flow_end
"""


def view(*nodes: NodeView, edges: tuple[EdgeView, ...] = ()) -> GraphView:
    return GraphView(title="Flow", description="", nodes=nodes, edges=edges)


def test_a_flow_is_written_as_a_flowchart() -> None:
    signal = Badge(kind=BadgeKind.SIGNAL, text="Approval", meaning="waits for a signal: Approval")
    retries = Badge(kind=BadgeKind.RETRIES, text="3", meaning="3 retries")

    text = render_mermaid(
        view(
            NodeView(id="flow:start", label="start", shape=Shape.START),
            NodeView(id="pick", label="pick"),
            NodeView(id="end", label="end", badges=(signal,)),
            NodeView(id="ship", label="ship", badges=(retries,)),
            NodeView(id="flow:end", label="end", shape=Shape.END),
            edges=(
                EdgeView(source="flow:start", target="pick"),
                EdgeView(source="pick", target="end", kind=EdgeKind.OPTIONAL, label="optional"),
                EdgeView(source="pick", target="ship", kind=EdgeKind.ORDER, label="order only"),
                EdgeView(source="end", target="ship"),
                EdgeView(source="ship", target="flow:end"),
            ),
        )
    )

    assert text == GOLDEN


def test_it_may_lead_down() -> None:
    assert render_mermaid(view(), direction=Direction.TOP_DOWN) == "flowchart TD\n"


def test_a_status_is_a_line_of_its_own() -> None:
    status = Status(name="waiting_for_signal", label="waiting for a signal")

    text = render_mermaid(view(NodeView(id="approve", label="approve", status=status)))

    assert 'step_approve["approve<br/>waiting for a signal"]' in text


@pytest.mark.parametrize(
    "dangerous",
    [
        '" --> evil',
        "</pre><script>alert(1)</script>",
        "`**bold**`",
        "a#quot;b",
        "%%{init: {}}%%",
        "a\nclick b call()",
        "&lt;",
    ],
)
def test_nothing_in_a_label_is_taken_for_more_than_text(dangerous: str) -> None:
    text = render_mermaid(view(NodeView(id="a", label=dangerous)))

    _, line = text.splitlines()
    [label] = re.fullmatch(r'    step_a\["(.*)"\]', line).groups()  # type: ignore[union-attr]
    assert re.fullmatch(r"(?:[\w .,:()=+/-]|#\d+;)*", label)
    assert re.sub(r"#(\d+);", lambda found: chr(int(found[1])), label) == " ".join(dangerous.split())
