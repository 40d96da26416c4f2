"""R9a: who queues work wakes a sleeping worker after the commit, in a transaction of its own, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import transaction

from catbird_django import task
from catbird_django.engine import workers
from catbird_django.models import Worker
from tests.support import USING, register_worker, second_session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def sleeper() -> int:
    worker_id = register_worker()
    workers.announce_sleep(worker_id, using=USING)
    return worker_id


@pytest.fixture
def listener() -> Iterator[psycopg.Connection[Any]]:
    with second_session() as session:
        session.autocommit = True
        session.execute("LISTEN cb_work")
        yield session


def heard(listener: psycopg.Connection[Any], *, timeout: float) -> list[str]:
    return [notice.payload for notice in listener.notifies(timeout=timeout, stop_after=1)]


def declare() -> Any:
    @task
    def mail() -> None: ...

    return mail


def test_a_sleeper_is_woken_after_the_commit_and_not_before(sleeper: int, listener: psycopg.Connection[Any]) -> None:
    mail = declare()
    with transaction.atomic():
        mail.run()
        assert Worker.objects.get().sleeping_since is not None
        assert heard(listener, timeout=0.2) == []

    assert heard(listener, timeout=5) == [str(sleeper)]
    assert Worker.objects.get().sleeping_since is None


@pytest.mark.usefixtures("sleeper")
def test_nobody_is_woken_for_what_is_rolled_back(listener: psycopg.Connection[Any]) -> None:
    mail = declare()
    with transaction.atomic():
        mail.run()
        transaction.set_rollback(True)

    assert heard(listener, timeout=0.2) == []
    assert Worker.objects.get().sleeping_since is not None


@pytest.mark.usefixtures("sleeper")
def test_nobody_is_woken_where_notifications_are_off(listener: psycopg.Connection[Any], settings: Any) -> None:
    """R9: optional."""
    settings.CATBIRD = {"NOTIFY": False}

    declare().run()

    assert heard(listener, timeout=0.2) == []
