"""`cb_claim_tasks` and `cb_find_task_lanes`."""

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now

from catbird_django.engine.tasks import claim_suspect_task, find_task_lanes
from catbird_django.models import TaskRun
from tests.support import LEASE, USING, claim, queue_runs, register, register_worker, second_session


def test_the_oldest_are_claimed_first() -> None:
    [task_id] = register("mail")
    ids = queue_runs("mail", 5)

    claims = claim((task_id, 0), worker_id=register_worker(), limit=3)

    assert [claimed.run_id for claimed in claims] == ids[:3]
    assert [claimed.input for claimed in claims] == ["0", "1", "2"]


def test_a_claimed_run_is_started_and_leased_to_the_worker() -> None:
    """W2, R7: the lease is set by the database's clock."""
    [task_id] = register("mail")
    [run_id] = queue_runs("mail", 1)
    worker_id = register_worker()

    [claimed] = claim((task_id, 0), worker_id=worker_id)

    run = TaskRun.objects.annotate(now=Now()).get(id=run_id)
    assert (run.status, run.worker_id) == ("started", worker_id)
    assert (run.id, str(run.delivery_token)) == claimed.delivery
    assert run.delivery_count == claimed.delivery_count == 1
    assert timedelta(0) <= run.now + LEASE - run.lease_until < timedelta(seconds=5)
    assert run.started_at is not None


def test_every_claim_call_makes_a_token_of_its_own() -> None:
    """R5."""
    [task_id] = register("mail")
    queue_runs("mail", 4)
    worker_id = register_worker()

    first = claim((task_id, 0), worker_id=worker_id, limit=2)
    second = claim((task_id, 0), worker_id=worker_id, limit=2)

    assert len({claimed.delivery.delivery_token for claimed in first}) == 1
    assert first[0].delivery.delivery_token != second[0].delivery.delivery_token


def test_each_lane_gives_at_most_its_limit() -> None:
    """T4b: unknown or saturated handlers do not clog the head."""
    clogging, wanted = register("clogging", "wanted")
    queue_runs("clogging", 20)
    queue_runs("wanted", 3, priority=-5)
    queue_runs("wanted", 3, priority=5)

    claims = claim((wanted, 5), (wanted, -5), worker_id=register_worker(), limit=2)

    assert sorted(claimed.priority for claimed in claims) == [-5, -5, 5, 5]
    assert TaskRun.objects.filter(task_id=clogging).queued().count() == 20


def test_a_run_that_is_not_due_is_left_alone() -> None:
    [task_id] = register("mail")
    [later, due] = queue_runs("mail", 2)
    TaskRun.objects.filter(id=later).update(visible_at=Now() + timedelta(hours=1))

    claims = claim((task_id, 0), worker_id=register_worker())

    assert [claimed.run_id for claimed in claims] == [due]


def test_a_claim_begins_at_the_low_water_mark() -> None:
    [task_id] = register("mail")
    ids = queue_runs("mail", 5)

    claims = claim((task_id, 0), worker_id=register_worker(), low_id=ids[3])

    assert [claimed.run_id for claimed in claims] == ids[3:]


@pytest.mark.django_db(transaction=True)
def test_two_workers_never_wait_for_each_other_nor_take_the_same_run() -> None:
    """R4, R6: FOR UPDATE SKIP LOCKED."""
    [task_id] = register("mail")
    ids = queue_runs("mail", 6)
    worker_id = register_worker()

    with second_session() as other:
        other.execute("SELECT id FROM cb_task_runs WHERE id = ANY (%s) FOR UPDATE", [ids[:2]])
        claims = claim((task_id, 0), worker_id=worker_id, limit=3)

    assert [claimed.run_id for claimed in claims] == ids[2:5]


def test_lanes_are_found_with_their_oldest_run() -> None:
    first, second, _ = register("first", "second", "unknown")
    queue_runs("unknown", 2)
    [_, low] = queue_runs("second", 1, priority=3) + queue_runs("second", 1, priority=-3)
    [_, express] = queue_runs("first", 1) + queue_runs("first", 1, queue="express")

    lanes = find_task_lanes([first, second], None, using=USING)
    only_express = find_task_lanes([first, second], ["express"], using=USING)

    assert {(lane.queue, lane.handler_id, lane.priority) for lane in lanes} == {
        ("default", first, 0),
        ("express", first, 0),
        ("default", second, 3),
        ("default", second, -3),
    }
    assert {lane.head_id for lane in lanes if lane.priority == -3} == {low}
    assert [lane.head_id for lane in only_express] == [express]


def test_suspect_runs_have_lanes_of_their_own() -> None:
    """T7a: whoever looks for lanes learns of them without asking again."""
    first, second, unknown = register("first", "second", "unknown")
    [ordinary, suspect] = queue_runs("first", 2)
    [_, express] = queue_runs("second", 1, priority=3) + queue_runs("second", 1, queue="express")
    strange = queue_runs("unknown", 1)
    TaskRun.objects.filter(id__in=[suspect, express, *strange]).update(lost_count=2, delivery_count=2)

    lanes = find_task_lanes([first, second], None, using=USING)
    default = find_task_lanes([first, second], ["default"], using=USING)

    assert {lane.head_id for lane in lanes if lane.is_suspect} == {suspect, express}
    assert {lane.head_id for lane in lanes if not lane.is_suspect} >= {ordinary}
    assert {lane.head_id for lane in default if lane.is_suspect} == {suspect}
    assert unknown not in {lane.handler_id for lane in lanes}


def test_one_suspect_run_is_claimed_the_highest_then_the_oldest() -> None:
    """T7a."""
    [task_id, other] = register("mail", "other")
    [old, high, newer] = queue_runs("mail", 1) + queue_runs("mail", 1, priority=5) + queue_runs("mail", 1)
    queue_runs("mail", 3)
    queue_runs("other", 1)
    TaskRun.objects.filter(id__in=[old, high, newer]).update(lost_count=2, delivery_count=2)
    TaskRun.objects.filter(task_id=other).update(lost_count=4, delivery_count=4)
    worker_id = register_worker()

    claims = [claim_suspect_task([task_id], None, worker_id=worker_id, lease=LEASE, using=USING) for _ in range(4)]

    assert [claimed and claimed.run_id for claimed in claims] == [high, old, newer, None]


@pytest.mark.django_db(transaction=True)
def test_two_workers_take_two_suspects_without_waiting() -> None:
    """R4, R6."""
    [task_id] = register("mail")
    first, second = queue_runs("mail", 2)
    TaskRun.objects.update(lost_count=2, delivery_count=2)

    with second_session() as other:
        other.execute("SELECT id FROM cb_task_runs WHERE id = %s FOR UPDATE", [first])
        claimed = claim_suspect_task([task_id], None, worker_id=register_worker(), lease=LEASE, using=USING)

    assert claimed is not None
    assert claimed.run_id == second


def table_scans(call: str) -> tuple[int, int]:
    """Call a function; say how often it read the runs from end to end, and how often through the claim index."""
    with connection.cursor() as cursor:
        counts = """
            SELECT pg_stat_get_xact_numscans('cb_task_runs'::regclass),
                   pg_stat_get_xact_numscans('cb_task_runs_claimable'::regclass)
        """
        cursor.execute(counts)
        before = cursor.fetchone()
        cursor.execute(call)
        cursor.execute(counts)
        after = cursor.fetchone()
    return after[0] - before[0], after[1] - before[1]


CLAIM = """
    SELECT * FROM cb_claim_tasks(1, '30 s', ARRAY['default', 'default'], ARRAY[{0}, {0}]::bigint[],
                                 ARRAY[0, 1], ARRAY[0, 0]::bigint[], ARRAY[10, 10])
"""


@pytest.mark.parametrize("call", [CLAIM, "SELECT * FROM cb_find_task_lanes(ARRAY[{0}]::bigint[])"])
@pytest.mark.parametrize("rows", [0, 20_000])
@pytest.mark.parametrize("analysed", [False, True])
def test_claims_use_their_index_and_never_scan_the_table(call: str, rows: int, analysed: bool) -> None:
    """R4, PERFORMANCE G7: also on an empty table and on one that was never analysed."""
    [task_id] = register("mail")
    queue_runs("mail", rows)
    if analysed:
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE cb_task_runs")

    scanned, by_index = table_scans(call.format(task_id))

    assert scanned == 0
    assert by_index > 0
