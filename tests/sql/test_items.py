"""Items of maps by the SQL functions alone: made, claimed, settled, counted, read in order (F14, F14a, F15)."""

from __future__ import annotations

import json
import secrets
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from catbird_django.engine import explain, flow_cancel, items, reports, steps, tick
from catbird_django.models import Event, Item, RunLog, StepInput
from catbird_django.statuses import CancelVerdict, FlowStatus, ReportVerdict, SettleVerdict, StepStatus
from tests.flow_support import claim, complete, ended, plan, signal, start, statuses, when
from tests.item_support import (
    claim_items,
    complete_items,
    counts,
    fail_items,
    item_statuses,
    map_over,
    map_run,
    output_of,
)
from tests.sql.test_doctor import doctor
from tests.support import LEASE, USING, register_worker

COMPLETED, STALE = SettleVerdict.COMPLETED, SettleVerdict.STALE


def ills() -> list[str]:
    noise = {"nobody_runs_it", "polls_only", "lease_too_long"}
    return [str(finding) for finding in doctor() if finding.check_id not in noise]


def pass_time(**how_long: float) -> None:
    """Let leases and waits of items lie in the past by so much."""
    late = timedelta(**how_long)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE cb_items SET lease_until = lease_until - %s, visible_at = visible_at - %s,"
            " cancel_requested_at = cancel_requested_at - %s",
            [late, late, late],
        )


def tick_once() -> tick.Tick:
    return tick.tick(register_worker(), hold=timedelta(0), limit=1000, cancel_grace=timedelta(seconds=30), using=USING)


def test_a_map_over_the_input_gives_the_outputs_in_the_order_of_the_elements() -> None:
    """F14, F14a: whatever order they are completed in; the list is read from the items and stored nowhere else."""
    run = start(plan("doubles", map_over("input")), [5, 6, 7])
    assert map_run(run).status == StepStatus.WAITING_FOR_ITEMS

    claims = claim_items()
    assert [(one.place, one.item, one.is_error) for one in claims] == [
        (0, "5", False),
        (1, "6", False),
        (2, "7", False),
    ]
    for one in reversed(claims):
        assert complete_items([one]) == [COMPLETED]

    assert ended(run).status == FlowStatus.COMPLETED
    assert output_of(run) == [10, 12, 14]
    assert (run.output, run.output_run_id) == (None, map_run(run).pk)
    assert map_run(run).output is None
    assert ills() == []


def test_a_map_over_a_step_begins_when_that_has_completed() -> None:
    run = start(plan("doubles", {"name": "numbers"}, map_over("numbers")))
    assert claim_items() == []

    complete(numbers=[1, 2])
    complete_items(claim_items())

    assert output_of(run) == [2, 4]
    assert StepInput.objects.get(step_run=map_run(run)).source == "numbers"


@pytest.mark.parametrize("source", ["input", "numbers"])
def test_a_map_of_nothing_completes_at_once(source: str) -> None:
    """F14: and what comes after it begins."""
    shape = plan("doubles", {"name": "numbers"}, map_over(source), {"name": "total", "needs": ["double"]})
    run = start(shape, [])
    if source == "numbers":
        complete(numbers=[])

    assert map_run(run).status == StepStatus.COMPLETED
    assert counts(run) == (0, 0, 0, 0)
    assert statuses(run)["total"] == "queued"
    assert ills() == []


def test_a_flow_that_is_nothing_but_a_map_of_nothing_gives_an_empty_list() -> None:
    run = start(plan("doubles", map_over("input")), [])

    assert ended(run).status == FlowStatus.COMPLETED
    assert output_of(run) == []


def test_maps_of_nothing_in_a_row_complete_together() -> None:
    """F14: nested empties."""
    run = start(plan("doubles", map_over("input", "a"), map_over("a", "b"), map_over("b", "c")), [])

    assert ended(run).status == FlowStatus.COMPLETED
    assert set(statuses(run).values()) == {"completed"}
    assert output_of(run) == []


def test_lists_in_a_list_are_elements_like_others() -> None:
    run = start(plan("doubles", map_over("input")), [[], [[]], None])

    claims = claim_items()
    complete_items(claims, *[json.loads(one.item) for one in claims])

    assert output_of(run) == [[], [[]], None]


@pytest.mark.parametrize("given", [None, 7, "text", {"a": 1}, True])
def test_what_is_no_list_fails_the_map_at_once(given: Any) -> None:
    """F14."""
    run = start(plan("doubles", map_over("input")), given)

    assert ended(run).status == FlowStatus.FAILED
    assert run.error["type"] == "NotAList"
    assert run.error["step"] == "double"
    assert ills() == []


def test_a_step_that_returns_no_list_fails_the_map_and_cancels_what_waits() -> None:
    run = start(plan("doubles", {"name": "numbers"}, map_over("numbers"), {"name": "total", "needs": ["double"]}))

    complete(numbers={"not": "a list"})

    assert ended(run).status == FlowStatus.FAILED
    assert statuses(run) == {"numbers": "completed", "double": "failed", "total": "canceled"}


def test_a_map_over_a_map_takes_the_outputs_where_they_are() -> None:
    """F14: counts are passed on, and no list is put together."""
    run = start(plan("twice", map_over("input", "double"), map_over("double", "again")), [1, 2, 3])

    complete_items(claim_items())
    assert list(Item.objects.filter(step__name="again").values_list("input", flat=True)) == [None, None, None]
    claims = claim_items()
    assert [one.item for one in claims] == ["2", "4", "6"]
    complete_items(claims)

    assert output_of(run) == [4, 8, 12]
    assert ills() == []


def test_items_are_called_with_what_their_map_has_received() -> None:
    """F1, F5: read once per claim and map, without what it goes over."""
    shape = plan(
        "doubles",
        {"name": "numbers"},
        {"name": "factor"},
        map_over("numbers", needs=["numbers", "factor"], takes_input=True),
    )
    start(shape, {"who": "kim"})
    complete(numbers=[1, 2, 3], factor=7)

    claims = claim_items()

    assert {json.dumps(json.loads(one.outputs or "")) for one in claims} == {'{"factor": 7}'}
    assert {json.loads(one.input or "")["who"] for one in claims} == {"kim"}


def test_items_of_a_map_that_takes_another_ones_list_are_told_where_it_is() -> None:
    shape = plan(
        "doubles",
        map_over("input", "double"),
        map_over("input", "share", needs=["double"], takes_lists=True),
    )
    run = start(shape, [1, 2])
    complete_items(claim_items())

    claims = claim_items()

    assert {one.lists for one in claims} == {json.dumps({"double": map_run(run).pk})}
    assert {one.outputs for one in claims} == {"{}"}


def test_a_step_behind_a_map_is_told_where_its_items_are() -> None:
    """F14a, F15: a consumer reads them, in their order and a page at a time."""
    run = start(
        plan("doubles", map_over("input"), {"name": "total", "needs": ["double"], "takes_lists": True}), [1, 2, 3]
    )
    complete_items(claim_items())

    total = claim()["total"]
    assert (total.lists, total.outputs) == (json.dumps({"double": map_run(run).pk}), "{}")
    first = items.read_items(map_run(run).pk, limit=2, using=USING)
    rest = items.read_items(map_run(run).pk, after=first[-1].place, limit=2, using=USING)
    assert [(one.place, one.value, one.is_error) for one in first + rest] == [
        (0, "2", False),
        (1, "4", False),
        (2, "6", False),
    ]


def test_a_page_of_items_ends_where_they_become_too_many_bytes() -> None:
    """F14a: one at least, however big; so that whoever goes over them knows what they may take of memory."""
    run = start(plan("doubles", map_over("input")), [1, 2, 3, 4])
    big = [secrets.token_hex(2000) for _ in range(4)]
    complete_items(claim_items(), *big)
    step_run_id = map_run(run).pk

    def page(after: int, size: int) -> list[int]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT index FROM cb_read_items(%s, %s, 500, %s)", [step_run_id, after, size])
            return [index for (index,) in cursor.fetchall()]

    assert page(-1, 10_000) == [0, 1]
    assert page(1, 10) == [2]
    assert page(1, 1_000_000) == [2, 3]
    assert page(3, 10) == []


def test_the_last_item_completes_the_step_once() -> None:
    run = start(plan("doubles", map_over("input"), {"name": "total", "needs": ["double"]}), [1, 2, 3])
    first, second, third = claim_items()

    assert complete_items([first, second]) == [COMPLETED, COMPLETED]
    assert map_run(run).status == StepStatus.WAITING_FOR_ITEMS
    assert complete_items([third]) == [COMPLETED]
    assert complete_items([third]) == [STALE]

    assert map_run(run).status == StepStatus.COMPLETED
    assert statuses(run)["total"] == "queued"
    assert counts(run) == (3, 3, 0, 0)


def test_stale_items_of_a_batch_disturb_nobody() -> None:
    """F4, R5."""
    run = start(plan("doubles", map_over("input")), [1, 2, 3])
    first, second, third = claim_items()
    complete_items([second])
    forged = third._replace(delivery=items.ItemDelivery(third.run_id, str(uuid4())))

    assert complete_items([first, second, forged, third, third]) == [COMPLETED, STALE, STALE, COMPLETED, STALE]
    assert counts(run) == (3, 3, 0, 0)
    assert ended(run).status == FlowStatus.COMPLETED


def test_one_batch_completes_items_of_many_runs() -> None:
    shape = plan("doubles", map_over("input"))
    runs = [start(shape, list(range(length))) for length in range(1, 6)]

    claims = claim_items()
    assert len(claims) == 15
    complete_items(claims)

    assert [output_of(run) for run in runs] == [[2 * n for n in range(length)] for length in range(1, 6)]
    assert ills() == []


def test_an_item_is_tried_again_by_itself() -> None:
    """F14: its own retries, after its own wait."""
    run = start(plan("doubles", map_over("input", max_retries=1)), [1, 2])
    first, second = claim_items()
    complete_items([second])

    assert fail_items([first], retry_in=timedelta(minutes=1)) == [SettleVerdict.RETRYING]
    assert claim_items() == []
    pass_time(minutes=2)
    tick_once()
    [again] = claim_items()
    assert (again.run_id, again.attempt) == (first.run_id, 2)
    complete_items([again])

    assert output_of(run) == [2, 4]
    assert [event.event for event in Event.objects.filter(run_kind="item")] == ["retrying"]


def test_an_item_that_fails_for_good_fails_its_step_and_its_run() -> None:
    """F14a: by default; the others are canceled, and who runs one is told."""
    run = start(plan("doubles", map_over("input")), [1, 2, 3])
    first, second, _third = claim_items()
    complete_items([first])

    assert fail_items([second]) == [SettleVerdict.FAILED]

    assert ended(run).status == FlowStatus.FAILED
    assert (run.error["step"], run.error["item"], run.error["message"]) == ("double", 1, "no good")
    assert item_statuses(run) == ["completed", "failed", "canceled"]
    assert counts(run) == (3, 1, 1, 1)
    assert ills() == []


def test_where_failures_are_collected_an_error_stands_in_the_place_of_each() -> None:
    """F14a: on_item_failure="collect"."""
    run = start(plan("doubles", map_over("input", max_failed_items=None)), [1, 2, 3])
    first, second, third = claim_items()

    fail_items([first])
    complete_items([second])
    fail_items([third])

    error = {"type": "ValueError", "message": "no good"}
    assert ended(run).status == FlowStatus.COMPLETED
    assert output_of(run) == [{"index": 0, **error}, 4, {"index": 2, **error}]
    assert [one.is_error for one in items.read_items(map_run(run).pk, limit=9, using=USING)] == [True, False, True]
    assert counts(run) == (3, 1, 2, 0)
    assert ills() == []


def test_a_map_over_one_that_collects_failures_is_given_the_errors_too() -> None:
    start(plan("doubles", map_over("input", max_failed_items=None), map_over("double", "again")), [1, 2])
    first, second = claim_items()
    fail_items([first])
    complete_items([second])

    claims = claim_items()

    assert [one.is_error for one in claims] == [True, False]
    assert json.loads(claims[0].item) == {"index": 0, "type": "ValueError", "message": "no good"}


def test_so_many_failures_are_tolerated_and_no_more() -> None:
    """F14a: tolerate=1."""
    shape = plan("doubles", map_over("input", max_failed_items=1))
    lucky, unlucky = start(shape, [1, 2, 3]), start(shape, [1, 2, 3])
    claims = claim_items()
    of_lucky = [one for one in claims if one.flow_run_id == lucky.pk]
    of_unlucky = [one for one in claims if one.flow_run_id == unlucky.pk]

    fail_items(of_lucky[:1])
    complete_items(of_lucky[1:])
    fail_items(of_unlucky[:1])
    assert ended(unlucky).status == FlowStatus.STARTED
    fail_items(of_unlucky[1:2])

    assert (ended(lucky).status, ended(unlucky).status) == (FlowStatus.COMPLETED, FlowStatus.FAILED)
    assert complete_items(of_unlucky[2:]) == [STALE]
    assert ills() == []


def test_a_map_that_is_exhausted_may_be_skipped_and_its_run_goes_on() -> None:
    """F11a: on_exhausted="skip"."""
    run = start(
        plan(
            "doubles",
            map_over("input", on_exhausted="skip"),
            {"name": "b", "needs": ["double"], "optional": ["double"]},
        ),
        [1, 2, 3],
    )
    claims = claim_items(2)

    fail_items(claims[:1])

    assert statuses(run) == {"double": "skipped", "b": "queued"}
    assert item_statuses(run) == ["failed", "canceled", "canceled"]
    complete(b="done")
    assert ended(run).output == "done"
    assert ills() == []


def test_a_batch_of_failures_beyond_what_is_tolerated_fails_the_run_once() -> None:
    run = start(plan("doubles", map_over("input")), [1, 2, 3])

    assert fail_items(claim_items()) == [SettleVerdict.FAILED] * 3

    assert ended(run).status == FlowStatus.FAILED
    assert run.error["item"] == 0
    assert Event.objects.filter(run_kind="flow", event="failed").count() == 1
    assert ills() == []


def test_a_map_waits_for_its_condition_and_its_signal_like_any_step() -> None:
    """F10, F12: also on a map without dependencies."""
    skipped = start(plan("maybe", map_over("input", **when("input[0] gt 5"))), [1])
    waiting = start(plan("asked", map_over("input", signal={}, takes_signal=True)), [1, 2])
    assert map_run(skipped).status == StepStatus.SKIPPED
    assert map_run(waiting).status == StepStatus.WAITING_FOR_SIGNAL

    signal(waiting, "double", {"factor": 3})

    claims = claim_items()
    assert [json.loads(one.signal or "") for one in claims] == [{"factor": 3}] * 2


def test_a_condition_may_look_at_the_outputs_of_a_map() -> None:
    """F10: as a list."""
    roots = {"condition_roots": ["double"]}
    run = start(
        plan(
            "doubles",
            map_over("input"),
            {"name": "b", "needs": ["double"], **_condition("double[1] eq 4"), **roots},
            {"name": "c", "needs": ["double"], **_condition("double[1] eq 5"), **roots},
        ),
        [1, 2],
    )

    complete_items(claim_items())

    assert (statuses(run)["b"], statuses(run)["c"]) == ("queued", "skipped")


def _condition(text: str) -> dict[str, Any]:
    from catbird_django.definitions.conditions import parse_condition

    return {"condition": parse_condition(text, roots={"double"}).as_json()}


def test_items_of_a_map_with_a_delay_are_due_after_it() -> None:
    """F20."""
    run = start(plan("later", map_over("input", delay=60)), [1, 2])

    assert claim_items() == []
    pass_time(seconds=61)
    tick_once()

    assert len(claim_items()) == 2
    assert item_statuses(run) == ["started", "started"]


def test_a_delayed_run_delays_the_items_of_its_first_maps() -> None:
    """F20, T4."""
    start(plan("later", map_over("input")), [1, 2], delay=timedelta(minutes=5))

    assert claim_items() == []
    assert Item.objects.filter(visible_at__isnull=False).count() == 2


def test_a_lost_item_is_taken_back_and_one_that_is_lost_too_often_has_failed() -> None:
    """W3, T7a."""
    run = start(plan("doubles", map_over("input", max_lost=1)), [1])

    [first] = claim_items()
    pass_time(minutes=5)
    assert tick_once().lost_count == 1
    [second] = claim_items()
    assert (second.run_id, second.lost_count) == (first.run_id, 1)
    assert complete_items([first]) == [STALE]
    pass_time(minutes=5)
    tick_once()

    assert ended(run).status == FlowStatus.FAILED
    assert "lost its worker 2 times" in run.error["message"]
    assert ills() == []


def test_an_item_that_has_lost_its_worker_twice_is_claimed_alone() -> None:
    """T7a."""
    start(plan("doubles", map_over("input")), [1, 2, 3])
    for _ in range(2):
        claim_items()
        pass_time(minutes=5)
        tick_once()

    assert claim_items() == []
    ids = [one.step_id for one in Item.objects.all()]
    lanes = [head.lane for head in steps.find_step_lanes(ids, None, using=USING) if head.is_suspect]
    requests = [items.LaneRequest(lane, 0, 10) for lane in lanes]
    alone = items.claim_items(requests, worker_id=register_worker(), lease=LEASE, suspect=True, using=USING)
    assert [one.place for one in alone] == [0]


def test_a_released_item_is_queued_again_and_charged_nothing() -> None:
    run = start(plan("doubles", map_over("input")), [1])
    [one] = claim_items()

    assert items.release_items([(one.delivery, None)], notify=False, using=USING) == [SettleVerdict.RELEASED]

    item = Item.objects.get()
    assert (item.status, item.delivery_count, item.failure_count, item.lost_count) == ("queued", 1, 0, 0)
    complete_items(claim_items())
    assert output_of(run) == [2]


def test_leases_of_items_are_renewed_by_their_holders_only() -> None:
    """W2, R5."""
    start(plan("doubles", map_over("input")), [1])
    [one] = claim_items()
    before = Item.objects.get().lease_until
    stranger = items.ItemDelivery(one.run_id, str(uuid4()))

    later = timedelta(minutes=10)
    assert items.extend_items([one.delivery, stranger], lease=later, using=USING) == [SettleVerdict.EXTENDED, STALE]
    assert Item.objects.get().lease_until > before


def test_a_canceled_run_cancels_what_is_queued_and_waits_for_what_runs() -> None:
    """F17: the handler is told at its next renewal."""
    run = start(plan("doubles", map_over("input")), [1, 2, 3])
    [running] = claim_items(1)

    [verdict] = flow_cancel.cancel_flows([run.pk], reason="enough", actor="kim", notify=False, using=USING)

    assert verdict is CancelVerdict.CANCELING
    assert item_statuses(run) == ["canceling", "canceled", "canceled"]
    assert items.extend_items([running.delivery], lease=LEASE, using=USING) == [SettleVerdict.CANCELING]
    assert complete_items([running]) == [SettleVerdict.CANCELED]
    assert (ended(run).status, run.cancel_reason) == (FlowStatus.CANCELED, "enough")
    assert counts(run) == (3, 0, 0, 3)
    assert ills() == []


def test_an_item_that_may_finish_counts_although_its_run_is_canceled() -> None:
    """T12: on_cancel="finish"."""
    run = start(plan("doubles", map_over("input", on_cancel="finish")), [1, 2])
    [running] = claim_items(1)
    flow_cancel.cancel_flows([run.pk], reason="", actor="", notify=False, using=USING)

    assert items.extend_items([running.delivery], lease=LEASE, using=USING) == [SettleVerdict.EXTENDED]
    assert complete_items([running]) == [COMPLETED]

    assert ended(run).status == FlowStatus.CANCELED
    assert counts(run) == (2, 1, 0, 1)
    assert ills() == []


def test_an_item_whose_handler_does_not_stop_is_ended_after_the_grace() -> None:
    """F17, T12: also when its worker is gone."""
    shape = plan("doubles", map_over("input"))
    slow, lost = start(shape, [1]), start(shape, [2])
    claim_items()
    flow_cancel.cancel_flows([slow.pk, lost.pk], reason="", actor="", notify=False, using=USING)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE cb_items SET cancel_requested_at = now() - interval '1 minute' WHERE flow_run_id = %s", [slow.pk]
        )
        cursor.execute(
            "UPDATE cb_items SET lease_until = now() - interval '1 second' WHERE flow_run_id = %s", [lost.pk]
        )

    tick_once()

    assert (ended(slow).status, ended(lost).status) == (FlowStatus.CANCELED, FlowStatus.CANCELED)
    assert ills() == []


def test_a_handler_of_an_item_may_cancel_its_run() -> None:
    """T7."""
    run = start(plan("doubles", map_over("input")), [1, 2])
    first, second = claim_items()

    assert flow_cancel.cancel_claimed_items([(first.delivery, "pointless")], notify=False, using=USING) == [
        SettleVerdict.CANCELED
    ]
    assert complete_items([second]) == [SettleVerdict.CANCELED]

    assert (ended(run).status, run.cancel_reason) == (FlowStatus.CANCELED, "pointless")
    assert counts(run) == (2, 0, 0, 2)
    assert ills() == []


@pytest.mark.parametrize("how", ["fail", "cancel", "early"])
def test_more_than_a_batch_of_queued_items_is_ended_by_the_tick(how: str) -> None:
    """R8a: the run says meanwhile what it will be, nothing of it is run, and what is reported of it is refused."""
    shape = plan("many", map_over("input"), {"name": "b", "needs": ["double"]})
    run = start(shape, list(range(2500)))
    doomed, other = claim_items(2)
    match how:
        case "fail":
            fail_items([doomed])
            during, after = FlowStatus.FAILING, FlowStatus.FAILED
        case "cancel":
            flow_cancel.cancel_claimed_items([(doomed.delivery, "")], notify=False, using=USING)
            during, after = FlowStatus.CANCELING, FlowStatus.CANCELED
        case _:
            items.complete_items_early([(doomed.delivery, '"enough"', "found it")], notify=False, using=USING)
            during, after = FlowStatus.COMPLETING, FlowStatus.COMPLETED

    assert ended(run).status == during
    assert claim_items(10) == []
    assert complete_items([other]) == [SettleVerdict.CANCELED if how == "cancel" else STALE]
    assert flow_cancel.cancel_flows([run.pk], reason="", actor="", notify=False, using=USING) == [
        CancelVerdict.CANCELING
    ]
    for _ in range(3):
        assert ended(run).status == during
        assert ills() == []
        tick_once()

    assert ended(run).status == after
    assert Item.objects.live().count() == 0
    assert sum(counts(run)[1:]) == 2500
    assert ills() == []


def test_the_tick_says_that_there_is_more_to_end_until_all_of_it_has_ended() -> None:
    """R8a: a batch is shared by maps, and need not be full for that."""
    run = start(plan("three", *(map_over("input", name) for name in "abc")), list(range(500)))
    flow_cancel.cancel_flows([run.pk], reason="", actor="", notify=False, using=USING)

    assert [tick_once().is_full for _ in range(2)] == [True, False]
    assert ended(run).status == FlowStatus.CANCELED


def test_the_first_to_complete_early_ends_the_run() -> None:
    """F16: step and reason are stored, and everything else is canceled."""
    run = start(plan("race", {"name": "a"}, {"name": "b"}, {"name": "c", "needs": ["a", "b"]}))
    claims = claim()

    verdicts = steps.complete_steps_early(
        [(claims["b"].delivery, '"b won"', "was faster"), (claims["a"].delivery, '"a won"', "")],
        notify=False,
        using=USING,
    )

    assert verdicts == [COMPLETED, STALE]
    assert (ended(run).status, run.output) == (FlowStatus.COMPLETED, "b won")
    assert (run.early_step, run.early_reason) == ("b", "was faster")
    assert statuses(run) == {"a": "canceled", "b": "completed", "c": "canceled"}
    assert [event.event for event in Event.objects.filter(run_kind="flow")] == ["completed_early", "completed"]
    assert ills() == []


def test_an_item_may_end_its_run_early() -> None:
    """F16."""
    run = start(plan("search", map_over("input")), [1, 2, 3])
    first, second, third = claim_items()
    complete_items([first])

    assert items.complete_items_early([(second.delivery, "[42]", "found")], notify=False, using=USING) == [COMPLETED]

    assert complete_items([third]) == [STALE]
    assert (ended(run).status, output_of(run), run.early_step) == (FlowStatus.COMPLETED, [42], "double")
    assert item_statuses(run) == ["completed", "completed", "canceled"]
    assert counts(run) == (3, 2, 0, 1)
    assert ills() == []


def test_what_was_canceled_cannot_complete_early() -> None:
    run = start(plan("race", {"name": "a"}))
    one = claim()["a"]
    flow_cancel.cancel_flows([run.pk], reason="", actor="", notify=False, using=USING)

    assert steps.complete_steps_early([(one.delivery, "1", "")], notify=False, using=USING) == [SettleVerdict.CANCELED]
    assert ended(run).status == FlowStatus.CANCELED


def test_handlers_of_items_report_progress_and_write_lines() -> None:
    """T14."""
    start(plan("doubles", map_over("input")), [1])
    [one] = claim_items()

    assert reports.report_items([(one.delivery, '{"done": 1}')], notify=False, using=USING) == [ReportVerdict.REPORTED]
    line = reports.LogLine(one.delivery, 1, "info", "hello", timedelta(0))
    assert reports.log_items([line], using=USING) == [ReportVerdict.LOGGED]

    assert Item.objects.get().progress["done"] == 1
    assert RunLog.objects.get(run_kind="item", run_id=one.run_id).message == "hello"


def test_explain_says_how_many_items_a_map_waits_for() -> None:
    """F25."""
    run = start(plan("doubles", map_over("input")), [1, 2, 3])
    complete_items(claim_items(1))

    [reason] = explain.explain_flow(run.pk, worker_ttl=timedelta(minutes=5), using=USING)

    assert (reason.step, reason.status, reason.requirement) == ("double", "waiting_for_items", "items")
    assert json.loads(reason.detail) == {"spawned": 3, "completed": 1, "failed": 0, "canceled": 0, "workers": 0}


def test_retention_takes_the_items_along() -> None:
    """W9, invariant 13."""
    run = start(plan("doubles", map_over("input")), [1, 2])
    claims = claim_items()
    reports.log_items([reports.LogLine(claims[0].delivery, 1, "info", "hello", timedelta(0))], using=USING)
    fail_items(claims)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE cb_flow_runs SET finished_at = finished_at - interval '1 day'")
        cursor.execute("SELECT removed_count FROM cb_apply_flow_retention('1 hour', 0, 100)")
        assert cursor.fetchone() == (1,)

    assert not Item.objects.exists()
    assert not RunLog.objects.exists()
    assert not Event.objects.filter(run_kind="item").exists()
    assert ills() == []
    assert run.pk


def test_all_events_tell_the_life_of_each_item() -> None:
    """E1: EVENTS = "all"."""
    start(plan("doubles", map_over("input")), [1])
    lanes = [
        items.LaneRequest(head.lane, 0, 10)
        for head in steps.find_step_lanes([Item.objects.get().step_id], None, using=USING)
    ]
    [one] = items.claim_items(lanes, worker_id=register_worker(), lease=LEASE, all_events=True, using=USING)
    items.complete_items([(one.delivery, "1")], notify=False, all_events=True, using=USING)

    told = Event.objects.filter(run_kind="item").order_by("id").values_list("event", "from_status", "to_status")
    assert list(told) == [
        ("queued", "", "queued"),
        ("claimed", "queued", "started"),
        ("completed", "started", "completed"),
    ]
    assert ills() == []
