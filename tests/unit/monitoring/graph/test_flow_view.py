"""What is shown of a flow: its steps, what they need, and what is special about them."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from catbird_django.client.flows import Flow, Optional, Signal
from catbird_django.monitoring.graph.flow_view import END, START, view_of_flow
from catbird_django.monitoring.graph.mermaid import render_mermaid
from catbird_django.monitoring.graph.view import BadgeKind, EdgeKind, GraphView, NodeView, Status
from tests.unit.monitoring.graph import docs_picture

EXAMPLE = """\
flowchart LR
    flow_start(["start"])
    step_validate["validate"]
    step_approve[/"approve<br/>only if validate.total gt 1000<br/>waits for a signal: Approval"/]
    step_ship["ship<br/>only if not approve exists or approve"]
    step_refund["refund<br/>only if approve exists and not approve"]
    flow_end(["end"])
    flow_start --> step_validate
    step_validate --> step_approve
    step_approve -->|"optional"| step_ship
    step_approve -->|"optional"| step_refund
    step_ship --> flow_end
    step_refund --> flow_end
"""


@dataclass
class Approval:
    ok: bool


@pytest.fixture
def example() -> Any:
    """The flow of the specification, as mypy reads it."""
    sys.modules.pop("tests.typing.flows", None)
    return importlib.import_module("tests.typing.flows").orders.definition.plan


@pytest.fixture
def view() -> GraphView:
    flow = Flow("parcel", description="Send a parcel.")

    @flow.step(max_retries=1, delay=300)
    def weigh(input: int) -> float:
        """Put it on the scale.

        It is an old one.
        """
        return input / 1000

    @flow.step(signal=Signal(Approval, quorum=2), deadline=86_400, may_skip=True)
    def sign(signal: list[Approval]) -> bool:
        return all(one.ok for one in signal)

    @flow.step(after=[weigh])
    def send(sign: Optional[bool]) -> None:
        """Bring it to the post office."""

    return view_of_flow(flow.definition.plan)


def node(view: GraphView, name: str) -> NodeView:
    return next(node for node in view.nodes if node.id == name)


def test_the_example_of_the_specification(example: Any) -> None:
    """SPEC 4, X3."""
    assert render_mermaid(view_of_flow(example)) == EXAMPLE


def test_edges_lead_from_the_start_over_the_steps_to_the_end(view: GraphView) -> None:
    assert [(edge.source, edge.target, edge.kind) for edge in view.edges] == [
        (START, "weigh", EdgeKind.NEEDED),
        (START, "sign", EdgeKind.NEEDED),
        ("sign", "send", EdgeKind.OPTIONAL),
        ("weigh", "send", EdgeKind.ORDER),
        ("send", END, EdgeKind.NEEDED),
    ]


def test_badges_say_what_is_special(view: GraphView) -> None:
    assert [(badge.kind, badge.text, badge.meaning) for badge in node(view, "weigh").badges] == [
        (BadgeKind.RETRIES, "1", "1 retry"),
        (BadgeKind.DELAY, "5 min", "waits 5 min first"),
    ]
    assert [(badge.kind, badge.text) for badge in node(view, "sign").badges] == [
        (BadgeKind.SIGNAL, "Approval from 2"),
        (BadgeKind.DEADLINE, "1 d"),
    ]
    assert node(view, "send").badges == ()


def test_tooltips_say_more(view: GraphView) -> None:
    description, handler, takes_input = node(view, "weigh").tooltip

    assert (description, takes_input) == ("Put it on the scale.", "takes the flow's input")
    assert handler.endswith("weigh")
    assert "may skip itself" in node(view, "sign").tooltip


def test_the_description_tells_the_picture_in_words(view: GraphView) -> None:
    assert view.title == "Flow parcel"
    assert view.description == (
        "Send a parcel. 3 steps. weigh: at the start; 1 retry; waits 5 min first. "
        "sign: at the start; waits for a signal: Approval from 2; fails after 1 d. send: after sign, weigh."
    )


def test_a_run_shows_the_status_of_each_step(example: Any) -> None:
    completed = Status(name="completed", label="completed")

    view = view_of_flow(example, statuses={"validate": completed})

    assert node(view, "validate").status == completed
    assert node(view, START).status is None


def test_the_picture_in_the_docs_is_what_is_drawn_today() -> None:
    again = "draw it again: DJANGO_SETTINGS_MODULE=project.settings python -m tests.unit.monitoring.graph.docs_picture"

    assert docs_picture.PICTURE.read_text(encoding="utf-8") == docs_picture.draw(), again
