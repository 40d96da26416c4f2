"""The proxy that other tests put between a worker and its server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from django.db import connection

from tests.proxy import Proxy, server_address
from tests.support import until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(server_address()) as proxy:
        yield proxy


def connected(proxy: Proxy, **options: Any) -> psycopg.Connection[Any]:
    parameters = connection.get_connection_params()
    kept = {key: parameters[key] for key in ("dbname", "user", "password") if parameters.get(key)}
    return psycopg.connect(**kept, host="127.0.0.1", port=proxy.port, autocommit=True, **options)


def test_it_passes_everything_on(proxy: Proxy) -> None:
    with connected(proxy) as session:
        assert session.execute("SELECT repeat('x', 1000000)").fetchone() == ("x" * 1000000,)
        assert proxy.connection_count == 1

    until(lambda: proxy.connection_count == 0)


def test_a_frozen_connection_stays_and_says_nothing_and_goes_on_when_it_thaws(proxy: Proxy) -> None:
    with connected(proxy) as session:
        proxy.freeze()
        asking = threading.Thread(target=session.execute, args=["SELECT 1"], daemon=True)
        asking.start()
        asking.join(timeout=0.3)
        assert asking.is_alive()

        proxy.thaw()

        asking.join(timeout=5)
        assert not asking.is_alive()
        assert not session.closed


def test_nobody_gets_in_while_it_is_frozen(proxy: Proxy) -> None:
    proxy.freeze()

    with pytest.raises(psycopg.errors.ConnectionTimeout):
        connected(proxy, connect_timeout=2)


def test_a_cut_ends_what_there_is_and_not_what_comes(proxy: Proxy) -> None:
    with connected(proxy) as session:
        session.execute("SELECT 1")
        proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 1")

    with connected(proxy) as session:
        session.execute("SELECT 1")


def test_those_that_are_stranded_stay_silent_and_new_ones_work(proxy: Proxy) -> None:
    with connected(proxy) as stranded:
        proxy.strand()
        asking = threading.Thread(target=ask, args=[stranded], daemon=True)
        asking.start()
        with connected(proxy) as session:
            session.execute("SELECT 1")

        asking.join(timeout=0.3)
        assert asking.is_alive()
        proxy.cut()
        asking.join(timeout=5)


def ask(session: psycopg.Connection[Any]) -> None:
    with suppress(psycopg.OperationalError):
        session.execute("SELECT 1")
