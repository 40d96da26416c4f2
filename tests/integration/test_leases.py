"""W2: a worker that finds a claim lost stops its handler, and takes nothing for lost that it has settled itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from catbird_django.engine import tasks
from catbird_django.engine.tasks import Delivery
from catbird_django.worker import kinds
from catbird_django.worker.leases import LeaseKeeper
from tests.support import USING, claim, queue_runs, register, register_worker, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def delivery() -> Delivery:
    [task_id] = register("mail")
    queue_runs("mail", 1)
    [claimed] = claim((task_id, 0), worker_id=register_worker())
    tasks.complete_tasks([(claimed.delivery, "1")], notify=False, using=USING)
    return claimed.delivery


@contextmanager
def keeping(delivery: Delivery, *, stop_handler: Callable[[Delivery], None]) -> Iterator[LeaseKeeper]:
    keeper = LeaseKeeper(
        register_worker(),
        lease=timedelta(seconds=30),
        worker_ttl=timedelta(minutes=5),
        using=USING,
        stop_handler=stop_handler,
        come_back=lambda: None,
        calling=nullcontext,
    )
    keeper.hold([delivery])
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.stop()


def test_the_handler_of_a_lost_claim_is_stopped(delivery: Delivery) -> None:
    stopped: list[Delivery] = []
    with keeping(delivery, stop_handler=stopped.append) as keeper:
        until(lambda: stopped == [delivery])

        assert keeper.is_canceled(delivery)
        assert not keeper.holds(delivery)


def test_what_was_settled_while_its_lease_was_renewed_is_not_taken_for_lost(
    delivery: Delivery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The settlement says so only after its commit, which a renewal may have seen before."""
    caplog.set_level(logging.WARNING, logger="catbird.worker")
    renewed = threading.Event()

    def renew(*args: Any, **options: Any) -> Any:
        verdicts = tasks.extend_tasks(*args, **options)
        renewed.set()
        return verdicts

    monkeypatch.setattr(kinds, "TASKS", replace(kinds.TASKS, extend=renew))
    stopped: list[Delivery] = []
    with keeping(delivery, stop_handler=stopped.append) as keeper:
        assert renewed.wait(10)
        keeper.let_go([delivery])

    assert stopped == []
    assert "claim was lost" not in caplog.text
