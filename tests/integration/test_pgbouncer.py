"""R9, RELIABILITY row 31: everything works behind PgBouncer in transaction mode, where LISTEN does not."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection, connections, transaction

from catbird_django import RunCanceled, task
from catbird_django.models import TaskRun, Worker
from catbird_django.worker import wakeups
from tests.aliases import alias_for
from tests.conftest import url_of
from tests.proxy import Proxy, server_address
from tests.support import until, working

PGBOUNCER = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed"),
]

QUICK = timedelta(seconds=0.1)
CONFIGURATION = """\
[databases]
{dbname} = host=127.0.0.1 port={server_port} user={user} {password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
max_client_conn = 200
logfile = {log}
ignore_startup_parameters = extra_float_digits
"""


@pytest.fixture
def pooled(place: Path) -> Iterator[str]:
    """An alias for the test database behind PgBouncer, which has three server connections for everybody."""
    # Between it and the server a proxy: the server listens on a socket that PgBouncer's account may not enter.
    with Proxy(server_address()) as server:
        port = free_port()
        with running_pgbouncer(place, port=port, server_port=server.port), alias_for("pooled", port=port) as alias:
            yield alias


class running_pgbouncer:
    def __init__(self, place: Path, *, port: int, server_port: int) -> None:
        parameters = connection.get_connection_params()
        password = f"password={parameters['password']}" if parameters.get("password") else ""
        self._port = port
        self._log = place / "pgbouncer.log"
        self._log.touch()
        self._log.chmod(0o666)
        configuration = place / "pgbouncer.ini"
        configuration.write_text(
            CONFIGURATION.format(
                dbname=parameters["dbname"],
                user=parameters["user"],
                password=password,
                server_port=server_port,
                port=port,
                log=self._log,
            )
        )
        configuration.chmod(0o644)
        self._command = [str(PGBOUNCER), "-q", *_as_somebody(), str(configuration)]

    def __enter__(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(self._answers, seconds=10)
        except AssertionError:
            self._process.kill()
            raise AssertionError(self._log.read_text()) from None

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(timeout=10)

    def _answers(self) -> bool:
        with socket.socket() as line:
            return line.connect_ex(("127.0.0.1", self._port)) == 0


def _as_somebody() -> list[str]:
    """PgBouncer refuses to run as root."""
    return ["-u", "nobody"] if os.getuid() == 0 else []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port: int = door.getsockname()[1]
    return port


def direct_dsn() -> str:
    return url_of(connection.get_connection_params())


def working_behind(alias: str, *names: str, **settings: Any) -> Any:
    return working(*names, concurrency=4, database=alias, poll_interval=QUICK, sweep_interval=QUICK, **settings)


def test_runs_retries_delays_keys_and_cancels_all_work(pooled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "PING_TAKES", 0.5)
    attempts: list[int] = []
    is_running = threading.Event()

    @task
    def echo(input: int) -> int:
        return input

    @task(max_retries=2, backoff=(0.01, 0.02))
    def flaky() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return "at last"

    @task
    async def endless() -> None:
        is_running.set()
        await asyncio.sleep(60)

    with working_behind(pooled, "echo", "flaky", "endless", lease=timedelta(seconds=3)):
        handles = echo.run_many(list(range(300)), using=pooled)
        assert [handle.wait(timeout=30) for handle in handles] == list(range(300))
        assert flaky.run(using=pooled).wait(timeout=20) == "at last"
        assert echo.run(7, delay=QUICK, using=pooled).wait(timeout=20) == 7
        first, second = (echo.run(8, concurrency_key="k", delay=QUICK, using=pooled) for _ in range(2))
        assert first.id == second.id
        canceled = endless.run(using=pooled)
        assert is_running.wait(10)
        canceled.cancel()
        with pytest.raises(RunCanceled):
            canceled.wait(timeout=20)
        assert first.wait(timeout=20) == 8


def test_a_run_belongs_to_its_caller_s_transaction_there_too(pooled: str) -> None:
    @task
    def mail() -> None: ...

    with working_behind(pooled, "mail"):
        with transaction.atomic(using=pooled):
            mail.run(using=pooled)
            transaction.set_rollback(True, using=pooled)
        with transaction.atomic(using=pooled):
            kept = mail.run(using=pooled)
        kept.wait(timeout=10)

    assert [run.pk for run in TaskRun.objects.all()] == [kept.id]


def test_a_worker_there_finds_out_that_it_hears_nothing(
    pooled: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wakeups, "PING_TAKES", 0.5)

    @task
    def mail() -> str:
        return "sent"

    with working_behind(pooled, "mail"):
        until(lambda: "polling only" in caplog.text)
        assert not Worker.objects.get().is_listening
        assert mail.run(using=pooled).wait(timeout=10) == "sent"


def test_with_a_direct_connection_for_it_a_worker_there_listens(pooled: str) -> None:
    @task
    def mail() -> str:
        return "sent"

    with working_behind(pooled, "mail", listen_dsn=direct_dsn()):
        until(lambda: Worker.objects.get().is_listening)
        assert mail.run(using=pooled).wait(timeout=10) == "sent"


def test_nothing_is_prepared_and_no_session_is_changed(pooled: str) -> None:
    """Django's connections do not prepare unless told to, and ours are Django's."""

    @task
    def mail(input: int) -> None: ...

    with working_behind(pooled, "mail"):
        for handle in mail.run_many(list(range(100)), using=pooled):
            handle.wait(timeout=20)
        raw = connections[pooled].connection
        assert isinstance(raw, psycopg.Connection)
        assert raw.prepare_threshold is None
        for _ in range(10):  # three server connections: each is met
            with connections[pooled].cursor() as cursor:
                cursor.execute("SELECT count(*) FROM pg_prepared_statements")
                assert cursor.fetchone() == (0,)
                cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
                assert cursor.fetchone() == (0,)
