"""Items of maps that are claimed while their run is being ended (F14, F17, F18, R8a)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import OperationalError, connections, transaction

from catbird_django.engine import flow_cancel, steps, tick
from catbird_django.engine.call import blames_lock
from catbird_django.engine.items import ItemClaim
from catbird_django.engine.tasks import Delivery
from catbird_django.models import FlowRun, Item
from catbird_django.statuses import SettleVerdict
from tests.flow_support import claim, ended, plan, start
from tests.item_support import claim_items, complete_items, counts, map_over
from tests.sql.test_doctor import doctor
from tests.support import LEASE, USING, is_waiting_for_a_lock, register_worker, until

pytestmark = pytest.mark.django_db(transaction=True)

ERROR = '{"type": "ValueError", "message": "no", "traceback": ""}'


@pytest.mark.parametrize("count", [3, 1500])  # ended at once, or in batches
@pytest.mark.parametrize(("how", "status"), [("cancel", "canceled"), ("fail", "failed"), ("early", "completed")])
def test_an_item_that_is_claimed_while_its_run_is_ended_is_ended_too(how: str, status: str, count: int) -> None:
    run = start(plan("claimed_meanwhile", {"name": "a"}, map_over("input")), list(range(count)))
    step = claim()["a"].delivery

    claimed = while_an_item_is_claimed(lambda: end_the_run(run, step, how))
    for _ in range(4):
        tick.tick(register_worker(), hold=timedelta(0), limit=1000, cancel_grace=LEASE, using=USING)

    canceled = SettleVerdict.CANCELED if how == "cancel" else SettleVerdict.STALE
    assert complete_items(claimed) == [canceled]
    assert ended(run).status == status
    assert sum(counts(run)[1:]) == count
    assert Item.objects.live().count() == 0
    assert [str(finding) for finding in doctor() if finding.severity == "error"] == []


def end_the_run(run: FlowRun, step: Delivery, how: str) -> None:
    match how:
        case "cancel":
            flow_cancel.cancel_flows([run.pk], reason="", actor="", notify=False, using=USING)
            steps.release_steps([(step, None)], notify=False, using=USING)
        case "fail":
            steps.fail_steps([(step, ERROR, None)], notify=False, using=USING)
        case _:
            steps.complete_steps_early([(step, "1", "enough")], notify=False, using=USING)


def while_an_item_is_claimed(call: Callable[[], None]) -> list[ItemClaim]:
    """Make a call while a claim is not yet committed; give what was claimed."""
    claims: list[ItemClaim] = []
    is_claimed, may_commit = threading.Event(), threading.Event()

    def claim_slowly() -> None:
        with transaction.atomic():
            claims.extend(claim_items(1))
            is_claimed.set()
            may_commit.wait(timeout=30)
        connections.close_all()

    def make() -> None:
        is_claimed.wait(timeout=30)
        while True:
            try:
                call()
                break
            except OperationalError as error:
                if not blames_lock(error):
                    raise
        connections.close_all()

    threads = [threading.Thread(target=claim_slowly), threading.Thread(target=make)]
    for thread in threads:
        thread.start()
    until(lambda: is_waiting_for_a_lock() or not threads[1].is_alive())
    may_commit.set()
    for thread in threads:
        thread.join(timeout=60)
    return claims
