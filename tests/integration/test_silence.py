"""W5, RELIABILITY row 20: a connection that is there and says nothing is noticed, and replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import OperationalError, connection, connections

from catbird_django import task
from catbird_django.engine import housekeeping, workers
from catbird_django.engine.silence import calls_within
from catbird_django.models import TaskRun, Worker
from tests.aliases import alias_for
from tests.conftest import url_of
from tests.proxy import Proxy, server_address
from tests.support import USING, register_worker, second_session, until, working

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).parents[2]
LEASE = timedelta(seconds=6)  # renewals have 2 seconds then, other calls 5


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(server_address()) as proxy, alias_for("proxied", port=proxy.port):
        yield proxy


def seconds_until_refused(seconds: float, using: str) -> float:
    began = time.monotonic()
    with pytest.raises(OperationalError), calls_within(seconds, using=using):
        workers.find_writers(using=using)
    return time.monotonic() - began


def test_a_call_that_gets_no_answer_is_given_up_and_the_next_one_connects_anew(proxy: Proxy) -> None:
    workers.find_writers(using="proxied")
    proxy.strand()

    took = seconds_until_refused(1, "proxied")

    assert 0.9 < took < 5
    connections["proxied"].close()
    assert workers.find_writers(using="proxied")


def test_connecting_is_given_up_as_well(proxy: Proxy) -> None:
    proxy.freeze()

    assert seconds_until_refused(1, "proxied") < 6


def test_after_a_call_that_was_cut_off_the_next_has_twice_the_time(proxy: Proxy) -> None:
    """A line that is only slow must not be cut for ever."""
    with calls_within(0.5, using="proxied"):
        workers.find_writers(using="proxied")
        proxy.strand()
        with pytest.raises(OperationalError):
            workers.find_writers(using="proxied")
        connections["proxied"].close()
        connections["proxied"].ensure_connection()
        proxy.delay = 0.35  # there and back

        assert workers.find_writers(using="proxied")


def test_a_call_that_waits_for_a_lock_is_canceled_and_has_not_happened() -> None:
    """RELIABILITY row 24: else the server would carry it out later, for nobody."""
    worker_id = register_worker()
    with second_session() as other:
        other.execute("LOCK TABLE cb_workers IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(OperationalError, match="canceling statement"), calls_within(1, using=USING):
            workers.set_listening(worker_id, True, using=USING)

    assert not Worker.objects.get().is_listening


def test_other_threads_wait_as_long_as_it_takes() -> None:
    """Handlers and web processes are not touched."""
    worker_id = register_worker()

    def set_listening() -> None:
        workers.set_listening(worker_id, True, using=USING)
        connections.close_all()

    with second_session() as other, calls_within(0.3, using=USING):
        other.execute("LOCK TABLE cb_workers IN ACCESS EXCLUSIVE MODE")
        waiting = threading.Thread(target=set_listening)
        waiting.start()
        waiting.join(timeout=1)
        assert waiting.is_alive()
        other.rollback()
        waiting.join(timeout=5)

    assert Worker.objects.get().is_listening


def test_a_vacuum_may_take_its_time() -> None:
    with calls_within(0.01, using=USING):
        connections[USING].ensure_connection()
        housekeeping.vacuum_runs(using=USING)


def test_a_worker_goes_on_after_all_its_connections_have_fallen_silent(proxy: Proxy) -> None:
    @task
    def mail() -> str:
        return "sent"

    with working("mail", database="proxied", lease=LEASE, idle_poll_interval=timedelta(seconds=1)):
        assert mail.run().wait(timeout=10) == "sent"
        proxy.strand()

        assert mail.run().wait(timeout=20) == "sent"


def test_what_a_worker_holds_is_not_lost_when_its_connections_fall_silent(proxy: Proxy) -> None:
    """W2: there is time for another try before the lease runs out."""
    started, may_end = threading.Event(), threading.Event()

    @task
    def mail() -> str:
        started.set()
        may_end.wait(30)
        return "sent"

    with working("mail", database="proxied", lease=LEASE):
        handle = mail.run()
        assert started.wait(10)
        proxy.strand()
        stranded_until = TaskRun.objects.get().lease_until
        until(lambda: TaskRun.objects.get().lease_until > stranded_until + LEASE / 2, seconds=10)
        may_end.set()
        assert handle.wait(timeout=20) == "sent"

    run = TaskRun.objects.get()
    assert (run.delivery_count, run.lost_count) == (1, 0)


def test_a_line_that_is_only_slow_costs_time_and_no_claim(proxy: Proxy) -> None:
    """RELIABILITY row 21."""

    @task
    def mail(input: int) -> int:
        return input

    proxy.delay = 0.15  # each way, and each time
    with working("mail", database="proxied", lease=LEASE, concurrency=10):
        handles = mail.run_many(list(range(50)))
        assert [handle.wait(timeout=30) for handle in handles] == list(range(50))

    assert set(TaskRun.objects.values_list("delivery_count", "lost_count")) == {(1, 0)}


def test_a_worker_goes_on_after_all_its_connections_were_reset(proxy: Proxy) -> None:
    """RELIABILITY row 19."""

    @task
    def mail() -> str:
        return "sent"

    with working("mail", database="proxied", lease=LEASE):
        assert mail.run().wait(timeout=10) == "sent"
        proxy.cut()

        assert mail.run().wait(timeout=15) == "sent"


def test_a_worker_process_that_is_told_to_stop_in_the_silence_ends_in_time(proxy: Proxy) -> None:
    """W4, RELIABILITY row 05: exit 0 within grace + 5 seconds."""
    environment = {
        **os.environ,
        "DATABASE_URL": url_of({**connection.get_connection_params(), "host": "127.0.0.1", "port": proxy.port}),
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "CATBIRD": '{"SHUTDOWN_GRACE": 1}',
    }
    command = [sys.executable, str(ROOT / "manage.py"), "catbird_worker", "--noreload"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: Worker.objects.filter(sleeping_since__isnull=False).exists())
            proxy.freeze()
            process.send_signal(signal.SIGTERM)

            assert process.wait(timeout=1 + 5 + 2) == 0
        finally:
            process.kill()
