"""F12, F13: what a signal says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from catbird_django import DefinitionError
from catbird_django.client.flows import Flow, Signal


@dataclass
class Approval:
    ok: bool


class Form:
    pass


def stored(signal: Any, annotation: Any = Any) -> dict[str, Any]:
    flow = Flow("order")

    def approve(signal): ...  # type: ignore[no-untyped-def]

    approve.__annotations__["signal"] = annotation
    flow.step(signal=signal)(approve)
    [step] = flow.definition.plan.as_json()["steps"]
    return dict(step)


def test_a_type_is_short_for_a_signal_of_it() -> None:
    """F13."""
    assert stored(Approval, Approval) == stored(Signal(Approval), Approval)


def test_everything_that_is_said_is_stored() -> None:
    """F13."""
    step = stored(
        Signal(
            Approval,
            permission="shop.approve_order",
            groups=["managers", "owners"],
            users="kim",
            four_eyes=True,
            quorum=2,
            decision="ok",
            deadline=timedelta(days=2),
            remind=3600,
            on_deadline=Approval(ok=False),
            form=Form,
        ),
        list[Approval],
    )

    assert step["signal"] == {
        "permission": "shop.approve_order",
        "groups": ["managers", "owners"],
        "users": ["kim"],
        "four_eyes": True,
        "quorum": 2,
        "decision": "ok",
        "deadline": 172_800.0,
        "remind": 3600.0,
        "on_deadline": {"ok": False},
        "escalate_to": "",
        "form": f"{__name__}:Form",
    }
    assert step["signal_schema"]["properties"]["ok"]["type"] == "boolean"
    assert step["required_count"] == 1


def test_a_payload_of_null_is_not_the_same_as_none_at_all() -> None:
    assert "on_deadline" not in stored(Signal(bool | None, deadline=60))["signal"]
    assert stored(Signal(bool | None, deadline=60, on_deadline=None))["signal"]["on_deadline"] is None


def test_a_step_may_wait_for_a_signal_that_it_does_not_take() -> None:
    """F12."""
    flow = Flow("order")

    @flow.step(signal=Approval)
    def approve() -> None: ...

    [step] = flow.definition.plan.steps
    assert (step.required_count, step.dependency_count, step.takes_signal) == (1, 0, False)


@pytest.mark.parametrize("kind", [dict, Any, dict[str, bool], "Approval"])
def test_what_is_inside_an_open_type_only_its_value_can_tell(kind: Any) -> None:
    kind = Approval if kind == "Approval" else kind

    assert stored(Signal(kind, decision="ok"))["signal"]["decision"] == "ok"


@pytest.mark.parametrize(
    ("condition", "needs_signal", "roots"),
    [
        ("input.a and not signal.ok", True, ["input", "signal"]),
        ("input.a or (input.b and signal)", True, ["input", "signal"]),
        ("input.signal", False, ["input"]),
        (None, False, []),
    ],
)
def test_a_condition_that_mentions_the_signal_is_known(condition: Any, needs_signal: bool, roots: list[str]) -> None:
    """F10a: it is decided when everything has come, others before."""
    flow = Flow("order")
    flow.step(name="approve", signal=Approval, condition=condition)(lambda: None)

    [step] = flow.definition.plan.steps
    assert (step.condition_needs_signal, list(step.condition_roots)) == (needs_signal, roots)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"permission": "approve"}, 'permission must be "app.name"'),
        ({"permission": None}, "permission must be text"),
        ({"groups": 3}, "groups must be a list of names"),
        ({"groups": [""]}, "groups must be a list of names"),
        ({"groups": ["a", "a"]}, "groups names one twice"),
        ({"users": [3]}, "users must be a list of names"),
        ({"four_eyes": "yes"}, "four_eyes must be True or False"),
        ({"quorum": 0}, "quorum must be a whole number from 1"),
        ({"quorum": None}, "quorum must be a whole number from 1"),
        ({"decision": True}, "decision must be text"),
        ({"deadline": 0}, "deadline must be more than 0"),
        ({"remind": "daily"}, "remind must be more than 0"),
        ({"deadline": 60, "remind": 60}, "remind must be shorter than the signal's deadline"),
        ({"on_deadline": {"ok": True}}, "on_deadline needs a deadline"),
        ({"escalate_to": "owners"}, "escalate_to needs a deadline"),
        (
            {"deadline": 60, "on_deadline": None, "escalate_to": "owners"},
            "on_deadline and escalate_to exclude each other",
        ),
        ({"form": "shop.forms.Form"}, "form must be a class"),
        ({"form": 3}, "form must be a class"),
    ],
)
def test_what_contradicts_itself_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    """F2, F13."""
    with pytest.raises(DefinitionError, match=message):
        Signal(Approval, **options)
