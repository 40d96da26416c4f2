"""Items under races: many at once on the same map, and claims that are made while their run is being ended.

`RACE_ROUNDS=1000 python3 bootstrap.py test tests/sql/test_item_collisions.py` runs the long version: 500 to 1 000
rounds of each race.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections

from catbird_django.engine import flow_cancel, flows, items, steps, tick
from catbird_django.engine.items import ItemDelivery
from catbird_django.engine.steps import StepDelivery
from catbird_django.models import Event, FlowRun, Item, Step, StepRun
from catbird_django.statuses import SettleVerdict
from tests.flow_support import claim, claim_all, ended, plan, start, statuses
from tests.item_support import claim_items, complete_items, counts, fail_items, item_statuses, map_over, output_of
from tests.sql.test_flow_collisions import at_once, patiently
from tests.sql.test_flow_races import deadlocks, ills
from tests.support import LEASE, USING, is_waiting_for_a_lock, register_worker, second_session, until

ROUNDS = int(os.environ.get("RACE_ROUNDS", "20"))
ERROR = json.dumps({"type": "ValueError", "message": "no", "traceback": ""})
COMPLETED, STALE, CANCELED = SettleVerdict.COMPLETED, SettleVerdict.STALE, SettleVerdict.CANCELED

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120 + 2 * ROUNDS)]


@pytest.fixture(autouse=True)
def _nobody_deadlocks(transactional_db: None) -> Iterator[None]:
    """R6: not even one that is repeated."""
    before = deadlocks()
    yield
    assert deadlocks() == before


def tick_once(*, limit: int = 1000) -> tick.Tick:
    return tick.tick(register_worker(), hold=timedelta(0), limit=limit, cancel_grace=LEASE, using=USING)


def let_leases_run_out() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE cb_items SET lease_until = lease_until - interval '1 hour'")


CLAIM = """
    SELECT run_id, delivery_token::text
    FROM cb_claim_items(%s, '30 s', ARRAY['default'], ARRAY[%s::bigint], ARRAY[%s], ARRAY[0::bigint], ARRAY[%s])
"""


def claim_unseen(session: Any, count: int) -> list[ItemDelivery]:
    """Claim items in a session that does not commit yet."""
    [head] = steps.find_step_lanes(list(Step.objects.values_list("pk", flat=True)), None, using=USING)
    lane = head.lane
    rows = session.execute(CLAIM, [register_worker(), -lane.handler_id, lane.priority, count]).fetchall()
    return [ItemDelivery(run_id, token) for run_id, token in rows]


def elsewhere(call: Callable[[], Any]) -> threading.Thread:
    """Begin a call on a thread with a connection of its own."""

    def make() -> None:
        try:
            call()
        finally:
            connections.close_all()

    thread = threading.Thread(target=make)
    thread.start()
    return thread


ENDINGS: dict[str, tuple[Callable[[FlowRun, items.ItemClaim], Any], str]] = {
    "fail": (lambda _, one: fail_items([one]), "failed"),
    "cancel": (
        lambda run, _: flow_cancel.cancel_flows([run.pk], reason="", actor="", notify=False, using=USING),
        "canceled",
    ),
    "early": (
        lambda _, one: items.complete_items_early([(one.delivery, "[]", "enough")], notify=False, using=USING),
        "completed",
    ),
}


@pytest.mark.parametrize(("count", "then"), [(10, "complete"), (2500, "complete"), (2500, "release"), (2500, "lose")])
@pytest.mark.parametrize("how", ENDINGS)
def test_items_that_are_being_claimed_while_their_run_ends_end_with_it(count: int, how: str, then: str) -> None:
    """R8a: their claim was begun before anybody knew, and is committed after it."""
    shape = plan("ending", map_over("input", max_lost=0), {"name": "b", "needs": ["double"]})
    run = start(shape, list(range(count)))
    end, status = ENDINGS[how]
    [first] = claim_items(1)

    with second_session() as session:
        unseen = claim_unseen(session, 3)
        thread = elsewhere(lambda: patiently(lambda: end(run, first)))
        until(lambda: ended(run).status != "started" or is_waiting_for_a_lock())
        session.commit()
        thread.join(30)

    if then == "complete":
        verdicts = items.complete_items([(one, "1") for one in unseen], notify=False, using=USING)
        assert set(verdicts) <= {STALE, CANCELED}
    elif then == "release":
        items.release_items([(one, None) for one in unseen], notify=False, using=USING)
    else:
        let_leases_run_out()
    for _ in range(4):
        if how == "cancel":
            complete_items([first])
        tick_once()
    assert ended(run).status == status
    assert not Item.objects.live().exists()
    assert sum(counts(run)[1:]) == count
    assert ills() == []


def test_items_that_are_being_claimed_while_their_map_is_skipped_end_with_it() -> None:
    """F11, F14: the run goes on, and ends, without them."""
    shape = plan(
        "skipping", map_over("input", on_exhausted="skip"), {"name": "b", "needs": ["double"], "optional": ["double"]}
    )
    run = start(shape, list(range(10)))
    [first] = claim_items(1)

    with second_session() as session:
        unseen = claim_unseen(session, 3)
        thread = elsewhere(lambda: patiently(lambda: fail_items([first])))
        until(is_waiting_for_a_lock)
        session.commit()
        thread.join(30)

    assert items.complete_items([(one, "1") for one in unseen], notify=False, using=USING) == [STALE] * 3
    assert item_statuses(run) == ["failed"] + ["canceled"] * 9
    assert statuses(run) == {"double": "skipped", "b": "queued"}
    assert ills() == []


def test_two_sessions_that_complete_the_last_items_of_a_map_complete_it_once() -> None:
    """F14: never does each of the two see the other's item missing, and what comes after is queued once."""
    rounds = max(25, ROUNDS // 2)
    after = {"name": "b", "needs": ["double"], "takes_lists": True}
    flows.register_flows([plan("last", map_over("input"), after)], using=USING)
    flows.run_flows("last", ["[1, 2]"] * rounds, using=USING)
    claims = claim_items(2 * rounds)
    together = threading.Barrier(2, timeout=60)

    def complete_all(place: int) -> list[SettleVerdict]:
        verdicts = []
        for one in claims:
            if one.place == place:
                together.wait()
                verdicts += complete_items([one])
        return verdicts

    assert at_once(lambda: complete_all(0), lambda: complete_all(1)) == [[COMPLETED] * rounds] * 2

    maps = StepRun.objects.filter(step__name="double")
    assert set(maps.values_list("status", "items_completed")) == {("completed", 2)}
    assert StepRun.objects.filter(step__name="b", status="queued").count() == rounds
    assert [json.loads(one.lists or "") for one in claim_all(rounds)] == [
        {"double": pk} for pk in maps.order_by("pk").values_list("pk", flat=True)
    ]
    assert ills() == []


def test_batches_over_many_runs_in_opposite_orders_wait_for_each_other_and_no_longer() -> None:
    """F4, R6: each session brings one item of every run, the one forwards, the other backwards."""
    shape = plan("batches", map_over("input"), {"name": "b", "needs": ["double"]})
    flows.register_flows([shape], using=USING)
    for number in range(1, max(3, ROUNDS // 10) + 1):
        flows.run_flows("batches", ["[1, 2, 3, 4]"] * 20, using=USING)
        claims = claim_items(1000)
        shares = [[one for one in claims if one.place == place] for place in range(4)]
        shares = [share[:: 1 if place % 2 else -1] for place, share in enumerate(shares)]

        verdicts = at_once(*(lambda share=share: patiently(lambda: complete_items(share)) for share in shares))

        assert verdicts == [[COMPLETED] * 20] * 4
        assert StepRun.objects.filter(step__name="b", status="queued").count() == 20 * number
    assert ills() == []


EARLY = plan(
    "early",
    {"name": "a"},
    {"name": "b"},
    map_over("input"),
    {"name": "c", "needs": ["a", "b"]},
    {"name": "end", "needs": ["double", "c"]},
)
OTHERS: dict[str, Callable[[FlowRun, StepDelivery, ItemDelivery], Any]] = {
    "a step completes": lambda _run, step, _item: steps.complete_steps([(step, "1")], notify=False, using=USING)[0],
    "a step fails": lambda _run, step, _item: steps.fail_steps([(step, ERROR, None)], notify=False, using=USING)[0],
    "an item completes": lambda _run, _step, item: items.complete_items([(item, "1")], notify=False, using=USING)[0],
    "an item fails": lambda _run, _step, item: items.fail_items([(item, ERROR, None)], notify=False, using=USING)[0],
    "a step ends it too": lambda _run, step, _item: end_early(step, "other"),
    "an item ends it too": lambda _run, _step, item: end_early(item, "other"),
    "somebody cancels": lambda run, _step, _item: flow_cancel.cancel_flows(
        [run.pk], reason="", actor="", notify=False, using=USING
    )[0],
}


def end_early(delivery: StepDelivery | ItemDelivery, output: str) -> SettleVerdict:
    ending = (delivery, json.dumps(output), output)
    if isinstance(delivery, ItemDelivery):
        return items.complete_items_early([ending], notify=False, using=USING)[0]
    return steps.complete_steps_early([ending], notify=False, using=USING)[0]


@pytest.mark.parametrize("by", ["step", "item"])
@pytest.mark.parametrize("what", OTHERS)
def test_an_early_end_that_races_something_else_has_one_outcome(what: str, by: str) -> None:
    """F16, R8: exactly one of them has ended the run, and nothing of it lives."""
    outcomes: Counter[tuple[str, str]] = Counter()
    for _ in range(max(4, ROUNDS // 13)):
        run = start(EARLY, [1, 2, 3])
        held = {name: one.delivery for name, one in claim().items()}
        first, second, _third = (one.delivery for one in claim_items(3))
        ender = held["a"] if by == "step" else first

        early, other, _ = at_once(
            lambda one=ender: patiently(lambda: end_early(one, "early")),
            lambda run=run, step=held["b"], item=second: patiently(lambda: OTHERS[what](run, step, item)),
            lambda: claim_items(3),
        )

        finish(run)
        outcomes[run.status, str(early)] += 1
        if early is COMPLETED:
            step = "a" if by == "step" else "double"
            assert (run.status, output_of(run), run.early_step) == ("completed", "early", step)
        elif run.status == "completed":
            assert (output_of(run), str(other)) == ("other", "completed")
        else:
            assert run.status == {"somebody cancels": "canceled"}.get(what, "failed")
            assert run.early_step == ""
        assert nothing_lives_in(run)
        assert len(endings_of(run)) == 1
    assert {status for status, _ in outcomes} <= {"completed", "failed", "canceled"}
    assert ills() == []


def finish(run: FlowRun) -> None:
    """Let whoever has been told to stop do so, and the tick do the rest."""
    for _ in range(5):
        held = Item.objects.filter(flow_run_id=run.pk, status="canceling").values_list("pk", "delivery_token")
        deliveries = [ItemDelivery(pk, str(token)) for pk, token in held.order_by("pk")]
        items.complete_items([(one, "1") for one in deliveries], notify=False, using=USING)
        kept = StepRun.objects.filter(flow_run=run, status="canceling").values_list("pk", "delivery_token")
        steps.complete_steps(
            [(StepDelivery(pk, str(token)), "1") for pk, token in kept.order_by("pk")], notify=False, using=USING
        )
        if ended(run).finished_at is not None:
            return
        tick_once()


def nothing_lives_in(run: FlowRun) -> bool:
    return not (
        StepRun.objects.live().filter(flow_run=run).exists() or Item.objects.live().filter(flow_run_id=run.pk).exists()
    )


def endings_of(run: FlowRun) -> list[str]:
    """The events that say that the run has ended; one that completes otherwise than early has none."""
    final = Event.objects.filter(run_kind="flow", run_id=run.pk, to_status__in=["completed", "failed", "canceled"])
    return list(final.values_list("event", flat=True))


@pytest.mark.parametrize("on_exhausted", ["fail", "skip"])
@pytest.mark.parametrize("tolerated", [0, 1])
def test_a_failure_beyond_what_is_tolerated_that_races_the_last_item_counts_once(
    tolerated: int, on_exhausted: str
) -> None:
    """F14: whatever comes first, one failure too many is one too many, and no failure is forgotten."""
    shape = plan(
        f"tolerant_{tolerated}_{on_exhausted}",
        map_over("input", max_failed_items=tolerated, on_exhausted=on_exhausted),
        {"name": "b", "needs": ["double"], "optional": ["double"]},
    )
    for number in range(max(5, ROUNDS // 5)):
        run = start(shape, list(range(4)))
        claims = claim_items(4)
        failing = claims[: tolerated + number % 2]

        at_once(
            *(lambda one=one: patiently(lambda: fail_items([one])) for one in failing),
            *(lambda one=one: patiently(lambda: complete_items([one])) for one in claims[len(failing) :]),
        )

        found, count = statuses(run), Counter(item_statuses(run))
        if number % 2 == 0:
            assert found == {"double": "completed", "b": "queued"}
            assert (count["failed"], count["completed"]) == (tolerated, 4 - tolerated)
        elif on_exhausted == "fail":
            assert (found, ended(run).status) == ({"double": "failed", "b": "canceled"}, "failed")
            assert len(endings_of(run)) == 1
        else:
            assert found == {"double": "skipped", "b": "queued"}
            assert (
                Event.objects.filter(
                    event="skipped", run_id=StepRun.objects.get(step__name="double", flow_run=run).pk
                ).count()
                == 1
            )
        assert not Item.objects.live().filter(flow_run_id=run.pk).exists()
    assert ills() == []


@pytest.mark.parametrize("on_cancel", ["stop", "finish"])
def test_a_cancel_that_races_the_items_stops_the_run_unless_they_were_first(on_cancel: str) -> None:
    """F17: what was refused is not counted, and what was taken is."""
    shape = plan(f"canceled_{on_cancel}", map_over("input", on_cancel=on_cancel), {"name": "b", "needs": ["double"]})
    for _ in range(max(5, ROUNDS // 2)):
        run = start(shape, list(range(6)))
        claims = claim_items(4)

        [*verdicts, _, _] = at_once(
            *(lambda one=one: patiently(lambda: complete_items([one])) for one in claims),
            lambda run=run: flow_cancel.cancel_flows([run.pk], reason="", actor="", notify=False, using=USING),
            lambda: claim_items(4),
        )

        finish(run)
        assert run.status == "canceled"
        assert nothing_lives_in(run)
        accepted = sum(verdict == [COMPLETED] for verdict in verdicts)
        assert accepted <= Counter(item_statuses(run))["completed"] <= accepted + (2 if on_cancel == "finish" else 0)
        if on_cancel == "finish":
            assert accepted == 4
    assert ills() == []


def test_late_completions_that_race_the_tick_and_other_workers_complete_each_item_once() -> None:
    """R2, F14: the lease has run out; whoever is first has it, and the other is told."""
    shape = plan("lost", map_over("input", max_lost=1000))
    for _ in range(max(5, ROUNDS // 2)):
        run = start(shape, list(range(8)))
        late = claim_items(8)
        let_leases_run_out()

        first, second, _, again = at_once(
            lambda late=late: patiently(lambda: all_events(late[:5])),
            lambda late=late: patiently(lambda: all_events(late[3:])),
            lambda: [tick_once() for _ in range(2)],
            lambda: [claim_items(8) for _ in range(3)],
        )

        anew = [one for claimed in again for one in claimed]
        tick_once()
        anew += claim_items(8)
        verdicts = all_events(anew)
        done = (*first, *second, *verdicts)
        assert done.count(COMPLETED) == 8
        assert (ended(run).status, output_of(run)) == ("completed", [2 * number for number in range(8)])
        assert counts(run) == (8, 8, 0, 0)
        completions = Event.objects.filter(
            run_kind="item", event="completed", run_id__in=Item.objects.filter(flow_run_id=run.pk).values("pk")
        )
        assert completions.count() == 8
    assert ills() == []


def all_events(claims: list[items.ItemClaim]) -> list[SettleVerdict]:
    """Complete these items, and write that down."""
    done = [(one.delivery, json.dumps(2 * json.loads(one.item))) for one in claims]
    return items.complete_items(done, notify=False, all_events=True, using=USING)


@pytest.mark.parametrize("how", ENDINGS)
def test_an_ending_in_batches_that_races_claims_and_completions_ends_everything(how: str) -> None:
    """R8a: workers claim and complete all the while, and the tick ends what they leave."""
    end, status = ENDINGS[how]
    shape = plan("racing_batches", map_over("input"), map_over("double", "again"), {"name": "b", "needs": ["again"]})
    for _ in range(max(1, ROUNDS // 100)):
        run = start(shape, list(range(1500)))
        [first] = claim_items(1)
        is_over = threading.Event()

        def work(is_over: threading.Event = is_over) -> int:
            done = 0
            while not is_over.is_set():
                claims = claim_items(7)
                done += patiently(lambda claims=claims: complete_items(claims)).count(COMPLETED) if claims else 0
            return done

        def finish_it(run: FlowRun = run, first: items.ItemClaim = first, is_over: threading.Event = is_over) -> None:
            try:
                patiently(lambda: end(run, first))
                for _ in range(200):
                    tick_once(limit=100)
                    if FlowRun.objects.get(pk=run.pk).finished_at is not None:
                        return
                    patiently(lambda: complete_items([first]))
            finally:
                is_over.set()

        [*_, done, _] = at_once(work, work, work, finish_it)

        assert done >= 0
        assert ended(run).status == status
        assert nothing_lives_in(run)
        assert sum(counts(run)[1:]) == 1500
        assert ills() == []
