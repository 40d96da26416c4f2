"""`sql/workers.sql`."""

import pytest
from django.db import connection

from catbird_django.engine import workers
from catbird_django.models import Worker
from tests.support import USING, register_worker, second_session


def asleep() -> set[int]:
    return set(Worker.objects.filter(sleeping_since__isnull=False).values_list("id", flat=True))


def test_nobody_is_notified_while_nobody_sleeps() -> None:
    """R9a."""
    register_worker()

    assert workers.wake_workers(["default"], using=USING) == 0


def test_who_sleeps_and_serves_the_queue_is_woken_once() -> None:
    everything, mail, other = register_worker(), register_worker(queues=["mail", "post"]), register_worker(queues=["x"])
    for worker_id in (everything, mail, other):
        workers.announce_sleep(worker_id, using=USING)

    assert workers.wake_workers(["mail"], using=USING) == 2
    assert asleep() == {other}
    assert workers.wake_workers(["mail"], using=USING) == 0


@pytest.mark.django_db(transaction=True)
def test_a_worker_whose_row_is_locked_is_notified_all_the_same() -> None:
    """A heartbeat must not cost a wake-up."""
    worker_id = register_worker()
    workers.announce_sleep(worker_id, using=USING)

    with second_session() as other, second_session() as listener:
        other.execute("SELECT id FROM cb_workers FOR UPDATE")
        listener.autocommit = True
        listener.execute("LISTEN cb_work")
        workers.wake_workers(["default"], using=USING)
        heard = [notice.payload for notice in listener.notifies(timeout=5, stop_after=1)]

    assert heard == [str(worker_id)]


def test_a_draining_worker_sleeps_no_more_and_keeps_the_moment_it_began() -> None:
    """W8."""
    worker_id = register_worker()
    workers.announce_sleep(worker_id, using=USING)

    assert workers.drain_worker(worker_id, using=USING)
    since = Worker.objects.get().draining_since
    assert workers.drain_worker(worker_id, using=USING)

    worker = Worker.objects.get()
    assert worker.draining_since == since is not None
    assert worker.sleeping_since is None


def test_a_worker_that_is_gone_cannot_drain() -> None:
    assert not workers.drain_worker(0, using=USING)


def test_a_stopped_worker_sleeps_no_more() -> None:
    worker_id = register_worker()
    workers.announce_sleep(worker_id, using=USING)

    assert workers.stop_worker(worker_id, using=USING)
    stopped_at = Worker.objects.get().stopped_at
    assert workers.stop_worker(worker_id, using=USING)

    worker = Worker.objects.get()
    assert worker.sleeping_since is None
    assert worker.stopped_at == stopped_at is not None


@pytest.mark.django_db(transaction=True)
def test_a_worker_whose_row_is_locked_is_told_that_it_has_not_stopped_yet() -> None:
    worker_id = register_worker()

    with second_session() as other:
        other.execute("SELECT id FROM cb_workers FOR UPDATE")
        assert not workers.stop_worker(worker_id, using=USING)

    assert workers.stop_worker(worker_id, using=USING)
    assert workers.stop_worker(worker_id, using=USING)


def test_renewing_a_worker_that_is_gone_says_so() -> None:
    worker_id = register_worker()

    assert workers.renew_worker(worker_id, using=USING)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM cb_workers")
    assert not workers.renew_worker(worker_id, using=USING)
