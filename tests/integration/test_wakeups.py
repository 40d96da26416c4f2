"""R9, W6, RELIABILITY row 29: a worker knows whether notifications reach it, and polls when they do not."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from catbird_django import task
from catbird_django.engine import tick as engine
from catbird_django.models import Worker
from catbird_django.worker import wakeups
from tests.conftest import url_of
from tests.proxy import Proxy, server_address
from tests.support import second_session, until, working

pytestmark = pytest.mark.django_db(transaction=True)

QUICK = timedelta(seconds=0.2)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(server_address()) as proxy:
        yield proxy


def dsn_through(proxy: Proxy) -> str:
    return url_of({**connection.get_connection_params(), "host": "127.0.0.1", "port": proxy.port})


def is_listening() -> bool:
    return Worker.objects.get().is_listening


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "PING_EVERY", 0.5)
    monkeypatch.setattr(wakeups, "PING_TAKES", 0.5)


def test_a_worker_that_hears_itself_is_on_record_as_listening() -> None:
    @task
    def mail() -> str:
        return "sent"

    with working("mail"):
        until(is_listening)
        assert mail.run().wait(timeout=10) == "sent"


def test_a_worker_whose_line_falls_silent_polls_says_so_and_listens_again(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    @task
    def mail() -> str:
        return "sent"

    caplog.set_level(logging.INFO, logger="catbird.worker")
    with working("mail", listen_dsn=dsn_through(proxy), poll_interval=QUICK, lease=timedelta(seconds=3)):
        until(is_listening)
        proxy.freeze()
        until(lambda: not is_listening())
        assert mail.run().wait(timeout=5) == "sent"
        until(lambda: proxy.connection_count >= 1 and caplog.text.count("polling only") == 1)
        output = StringIO()
        call_command("catbird_status", stdout=output)
        assert "polling" in output.getvalue()

        proxy.thaw()
        until(is_listening, seconds=20)
        assert mail.run().wait(timeout=5) == "sent"

    assert caplog.text.count("polling only") == 1
    assert "notifications arrive again" in caplog.text


def test_a_line_that_stays_silent_is_replaced_by_a_new_one(proxy: Proxy) -> None:
    with working(listen_dsn=dsn_through(proxy), lease=timedelta(seconds=3)):
        until(is_listening)
        proxy.strand()

        until(lambda: not is_listening())
        until(is_listening)


def test_a_worker_that_was_taken_for_gone_is_on_record_again_when_it_comes_back() -> None:
    """W9."""
    with working(lease=timedelta(seconds=0.6), worker_ttl=timedelta(seconds=1)) as worker:
        until(is_listening)
        Worker.objects.all().delete()

        until(lambda: Worker.objects.filter(pk=worker.id, is_listening=True).exists())


def test_a_worker_that_was_taken_for_gone_can_be_woken_again_when_it_comes_back() -> None:
    """R9a: its announcement went with its row."""

    @task
    def mail() -> None: ...

    def sleeps() -> bool:
        return Worker.objects.filter(sleeping_since__isnull=False).exists()

    with working("mail", lease=timedelta(seconds=0.6), worker_ttl=timedelta(seconds=1)):
        until(sleeps)
        Worker.objects.all().delete()

        until(sleeps)


@pytest.mark.parametrize("options", [{"delay": 0}, {"run_at": datetime(2020, 1, 1, tzinfo=UTC)}])
def test_a_run_that_is_due_at_once_although_it_has_a_time_wakes_who_sleeps(options: Any) -> None:
    """R9a."""

    @task
    def mail() -> str:
        return "sent"

    with working("mail", idle_poll_interval=timedelta(minutes=5), sweep_interval=timedelta(minutes=5)):
        until(lambda: Worker.objects.filter(sleeping_since__isnull=False).exists())

        assert mail.run(**options).wait(timeout=10) == "sent"


def test_a_due_run_that_somebody_has_locked_does_not_keep_the_upkeep_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """W5, W6."""
    ticks: list[float] = []
    do_tick = engine.tick

    def tick(*args: Any, **options: Any) -> Any:
        ticks.append(time.monotonic())
        return do_tick(*args, **options)

    @task
    def mail() -> str:
        return "sent"

    handle = mail.run(delay=60)
    with second_session() as session:
        session.execute("UPDATE cb_task_runs SET visible_at = now() WHERE id = %s", [handle.id])
        session.commit()
        session.execute("SELECT FROM cb_task_runs WHERE id = %s FOR UPDATE", [handle.id])
        monkeypatch.setattr(engine, "tick", tick)
        with working("mail"):
            until(lambda: len(ticks) > 4)
            session.rollback()
            assert handle.wait(timeout=10) == "sent"

    assert ticks[4] - ticks[0] > 0.8


def test_many_delayed_runs_wake_only_the_elected_and_not_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """W6."""
    ticks: list[tuple[float, bool]] = []
    do_tick = engine.tick

    def tick(*args: Any, **options: Any) -> Any:
        done = do_tick(*args, **options)
        ticks.append((time.monotonic(), done.is_elected))
        return done

    @task
    def mail() -> None: ...

    rarely = {"sweep_interval": timedelta(minutes=5)}
    with working("mail", **rarely), working("mail", **rarely):
        until(lambda: Worker.objects.filter(is_listening=True).count() == 2)
        monkeypatch.setattr(engine, "tick", tick)
        for _ in range(100):
            mail.run(delay=600)
        until(lambda: len(ticks) > 2)

    assert all(is_elected for _, is_elected in ticks)
    assert all(later - earlier > 0.04 for (earlier, _), (later, _) in itertools.pairwise(ticks))
