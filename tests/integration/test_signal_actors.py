"""Who may give a signal, by the one function that pages and commands call for it (F13, U7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from catbird_django import Flow, Signal
from catbird_django.errors import SignalRefused
from catbird_django.models import FlowRun, SignalDelivery, StepRun
from catbird_django.monitoring.actions import Person, Shell, send_signal
from catbird_django.statuses import SignalVerdict

pytestmark = pytest.mark.django_db


@dataclass
class Approval:
    ok: bool


YES = {"ok": True}


def start(actor: str = "", **signal: Any) -> FlowRun:
    flow = Flow("ask")

    @flow.step(signal=Signal(Approval, **signal))
    def decide(signal: Any) -> bool:
        return True

    return FlowRun.objects.get(pk=flow.run(actor=actor).id)


def person(name: str, *permissions: str, group: str = "") -> Person:
    user = User.objects.create_user(name)
    user.user_permissions.set(Permission.objects.filter(codename__in=("send_signal", *permissions)))
    if group:
        user.groups.add(Group.objects.get_or_create(name=group)[0])
    return Person(user)


def verdict_of(actor: Person | Shell, run: FlowRun, **options: Any) -> SignalVerdict:
    try:
        send_signal(actor, run.pk, "decide", YES, **options)
    except SignalRefused as refusal:
        return refusal.verdict
    return SignalVerdict.ACCEPTED


def test_a_signal_that_names_nobody_is_left_to_everybody_who_may_give_signals() -> None:
    assert verdict_of(person("ann"), start()) is SignalVerdict.ACCEPTED


def test_nobody_gives_a_signal_without_the_permission_to_give_any() -> None:
    with pytest.raises(PermissionDenied):
        send_signal(Person(User.objects.create_user("eve")), start().pk, "decide", YES)
    assert not SignalDelivery.objects.exists()


@pytest.mark.parametrize(
    "names", [{"users": "ann"}, {"groups": ["managers"]}, {"permission": "catbird.view_payload"}], ids=str
)
def test_a_signal_is_left_to_those_whom_it_names(names: dict[str, Any]) -> None:
    """F13: and whoever else tries is on record."""
    run = start(**names)

    assert verdict_of(person("eve", group="interns"), run) is SignalVerdict.NOT_ALLOWED
    assert verdict_of(person("ann", "view_payload", group="managers"), run) is SignalVerdict.ACCEPTED

    given = SignalDelivery.objects.order_by("id").values_list("actor", "verdict")
    assert list(given) == [("eve", "not_allowed"), ("ann", "accepted")]


def test_an_overdue_signal_is_left_to_whom_it_is_escalated_to_as_well() -> None:
    run = start(groups="managers", deadline=60, escalate_to="directors")
    director = person("dan", group="directors")

    assert verdict_of(director, run) is SignalVerdict.NOT_ALLOWED
    StepRun.objects.update(signal_overdue_at=timezone.now())
    assert verdict_of(director, run) is SignalVerdict.ACCEPTED


def test_four_eyes_are_overridden_only_by_who_may_and_says_so() -> None:
    run = start(actor="ann", four_eyes=True)
    ann = person("ann")

    assert verdict_of(ann, run) is SignalVerdict.NOT_ALLOWED
    with pytest.raises(PermissionDenied):
        send_signal(ann, run.pk, "decide", YES, override_four_eyes=True)
    ann.user.user_permissions.add(Permission.objects.get(codename="override_four_eyes"))
    assert verdict_of(Person(User.objects.get(username="ann")), run, override_four_eyes=True) is SignalVerdict.ACCEPTED


def test_who_is_at_the_shell_is_trusted() -> None:
    assert verdict_of(Shell("root"), start(users="ann")) is SignalVerdict.ACCEPTED
