"""The line between a worker and the server is cut, falls silent, or is slow (RELIABILITY 05, 19-21)."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.chaos.processes import LEASE
from tests.chaos.rounds import Round
from tests.chaos.scenario import scenario
from tests.proxy import Proxy


@contextmanager
def proxy_for(round_: Round) -> Iterator[tuple[Proxy, str]]:
    """A proxy in front of the server, and the URL that leads through it."""
    with Proxy(round_.cluster.socket) as proxy:
        yield proxy, round_.cluster.url(round_.database, host="127.0.0.1", port=proxy.port)


def round_trip(url: str) -> float:
    """How many seconds a question and its answer take."""
    with psycopg.connect(url, autocommit=True) as session:
        began = time.monotonic()
        session.execute("SELECT 1")
        return time.monotonic() - began


@scenario("connections were reset")
def workers_outlive_resets_of_all_their_connections(round_: Round) -> None:
    with proxy_for(round_) as (proxy, url):
        worker = round_.start_worker(url=url)
        runs = round_.load(60, seconds=0.1)
        for _ in range(5):
            time.sleep(round_.random.uniform(0.1, 0.4))
            if proxy.connection_count:
                round_.saw("connections were reset")
            proxy.cut()

        round_.until_ended(runs)
        round_.expect(worker.is_alive, "the worker has ended")
        round_.become_quiet()


@scenario("the line was silent", "a stale result")
def a_worker_behind_a_silent_line_loses_its_runs_and_changes_nothing_later(round_: Round) -> None:
    """The line comes back when another has finished the short run, and is still at the long one."""
    with proxy_for(round_) as (proxy, url):
        cut_off = round_.start_worker(url=url)
        short, long = round_.run("note", {"seconds": 2}), round_.run("note", {"seconds": 4})
        round_.until_begun(short)
        round_.until_begun(long)
        proxy.freeze()
        frozen_at = time.time()
        round_.saw("the line was silent")
        other = round_.start_worker()
        round_.recovered(short, since=frozen_at)
        round_.until_ended([short])

        proxy.thaw()

        round_.until(lambda: "claim was lost" in cut_off.said(), seconds=40, what="a stale result")
        round_.saw("a stale result")
        round_.until_ended([short, long])
        for run_id in (short, long):
            round_.expect_counts(run_id, deliveries=2, lost=1)
            round_.expect(round_.row(run_id)["output"]["pid"] == other.pid, "what came too late was taken")
        round_.become_quiet()


@scenario("stopped behind a silent line")
def a_worker_behind_a_silent_line_stops_when_told(round_: Round) -> None:
    with proxy_for(round_) as (proxy, url):
        worker = round_.start_worker(url=url, settings={"SHUTDOWN_GRACE": 1})
        run_id = round_.run("note", {"seconds": 0.3})
        round_.until_begun(run_id)
        proxy.freeze()
        worker.send(signal.SIGTERM)

        code = worker.wait(1 + 5 + 1)

        round_.saw("stopped behind a silent line")
        round_.expect(code == 0, f"it ended with {code}")
        proxy.thaw()


@scenario("a slow line")
def a_slow_line_makes_nobody_lose_a_lease(round_: Round) -> None:
    with proxy_for(round_) as (proxy, url):
        round_.start_worker(url=url)
        proxy.delay = 0.15  # there and back: 300 ms
        if round_trip(url) > 0.3:
            round_.saw("a slow line")
        runs = [*round_.load(20, seconds=0.1), round_.run("note", {"seconds": LEASE + 1})]

        round_.until_ended(runs)

        for run_id in runs:
            round_.expect_counts(run_id, deliveries=1)
        proxy.delay = 0.0
        round_.become_quiet()
