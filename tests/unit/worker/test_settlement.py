"""How outcomes of steps and items are put into calls (F4a, F6, F16)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.db import DataError

from catbird_django.engine.steps import AnyDelivery, InlineOutput
from catbird_django.statuses import SettleVerdict
from catbird_django.worker import kinds, settlement
from catbird_django.worker.outcome import Completed, EndedEarly, Outcome, Settled
from catbird_django.worker.settlement import Settlement
from tests.unit.worker.claims import item_claim, step_claim


class Calls:
    """What the database is asked, and which outputs it does not take."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Any, Any]] = []
        self.refused: set[str] = set()

    def of(self, name: str) -> Any:
        def call(rows: Sequence[Any], *, inline: Sequence[InlineOutput] = (), **_: Any) -> list[SettleVerdict]:
            self.made.append((name, list(rows), list(inline)))
            if any(row[1] in self.refused for row in rows) or any(one.output in self.refused for one in inline):
                raise DataError from psycopg.errors.NumericValueOutOfRange()
            return [SettleVerdict.COMPLETED] * len(rows)

        return call


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    for name in ("STEPS", "ITEMS"):
        names = {field: calls.of(f"{name}.{field}") for field in ("complete", "complete_early", "fail")}
        monkeypatch.setattr(kinds, name, replace(getattr(kinds, name), **names))
    monkeypatch.setattr(settlement, "connections", _NoTransaction())
    return calls


class _NoTransaction:
    in_atomic_block = False

    def __getitem__(self, alias: str) -> _NoTransaction:
        return self

    def close_all(self) -> None: ...


def settle(*outcomes: Outcome) -> list[AnyDelivery]:
    """Settle these together; return those that may be let go of."""
    done: list[AnyDelivery] = []
    settling = Settlement(using="default", notify=False, settled=done.extend)
    for outcome in outcomes:
        settling.add(outcome)
    settling.start()
    assert settling.stop(timeout=5)
    return done


def test_inline_outputs_go_with_their_step_by_its_place_in_the_call(calls: Calls) -> None:
    """F6."""
    first, second = step_claim(), step_claim()._replace(run_id=9)

    settle(Completed(first, "1"), Completed(second, "2", (("a", "3"), ("b", "4"))))

    assert calls.made == [
        (
            "STEPS.complete",
            [(first.delivery, "1"), (second.delivery, "2")],
            [InlineOutput(1, "a", "3"), InlineOutput(1, "b", "4")],
        )
    ]


def test_a_step_that_is_refused_with_its_inline_steps_completes_without_them(calls: Calls) -> None:
    """F4a, F6: those are queued."""
    calls.refused = {"1e999999"}
    claim = step_claim()

    settle(Completed(claim, "2", (("a", "1e999999"),)))

    assert [(name, inline) for name, _, inline in calls.made] == [
        ("STEPS.complete", [InlineOutput(0, "a", "1e999999")]),
        ("STEPS.complete", []),
    ]


def test_early_ends_are_settled_by_kind_and_fail_when_they_cannot_be_stored(calls: Calls) -> None:
    """F4a, F16."""
    step, item = step_claim(), item_claim("1")

    settle(EndedEarly(step, "1", "why"), EndedEarly(item, "2", "because"))
    calls.refused = {"1e999999"}
    settle(EndedEarly(step, "1e999999", "why"))

    assert [(name, rows) for name, rows, _ in calls.made[:2]] == [
        ("STEPS.complete_early", [(step.delivery, "1", "why")]),
        ("ITEMS.complete_early", [(item.delivery, "2", "because")]),
    ]
    assert [name for name, _, _ in calls.made[2:]] == ["STEPS.complete_early", "STEPS.fail"]


def test_what_is_settled_already_is_only_let_go(calls: Calls) -> None:
    """F22."""
    claim, other = step_claim(), item_claim("1")

    assert set(settle(Settled(claim), Completed(other, "1"))) == {claim.delivery, other.delivery}
    assert [name for name, _, _ in calls.made] == ["ITEMS.complete"]
