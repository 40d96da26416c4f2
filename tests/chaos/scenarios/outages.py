"""The server goes away, falls silent, or lets nobody in (RELIABILITY 16-18, 20, 24, 26, 27, 29, W5)."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack

import psycopg

from tests.chaos.cluster import WORKER_ROLE
from tests.chaos.processes import LEASE
from tests.chaos.rounds import Round
from tests.chaos.scenario import scenario
from tests.chaos.sessions import completed, end_sessions, goes_on


@scenario("restarted under load", alone=True)
def work_goes_on_after_each_immediate_restart_of_the_server(round_: Round) -> None:
    round_.start_worker(wait=False)
    round_.start_worker()
    runs = round_.load(60, seconds=0.2)
    for _ in range(2 if round_.is_short else 4):
        runs += round_.load(100, seconds=0.2)  # more than they can do until it is up again
        time.sleep(round_.random.uniform(0.2, 0.8))
        round_.cluster.restart(down_for=round_.random.uniform(0, 0.5))
        round_.saw("restarted under load")
        goes_on(round_)

    round_.until_ended(runs)


@scenario("in-sweep:sleep-1:1", "restarted in the sweep", alone=True)
def a_restart_in_the_middle_of_a_sweep_only_repeats_it(round_: Round) -> None:
    victim = round_.start_worker()
    run_id = round_.run("note", {"seconds": 1.5})
    round_.until_begun(run_id)
    victim.kill()
    round_.until_lease_ran_out(run_id)
    sweeper = round_.start_worker(failpoint="in-sweep:sleep-1:1", wait=False)
    round_.until(lambda: sweeper.fired(), what="a sweep")
    round_.cluster.restart()
    round_.saw("restarted in the sweep")

    round_.until_ended([run_id])
    round_.expect_counts(run_id, deliveries=2, lost=1)


@scenario("sessions were ended")
def workers_outlive_the_end_of_all_their_sessions_again_and_again(round_: Round) -> None:
    round_.start_worker(wait=False)
    round_.start_worker()
    runs = round_.load(60, seconds=0.2)
    for _ in range(5 if round_.is_short else 15):
        time.sleep(round_.random.uniform(0.1, 0.5))
        if end_sessions(round_):
            round_.saw("sessions were ended")

    round_.until_ended(runs)


@scenario("the listener was cut off")
def a_worker_whose_listener_is_cut_off_still_finds_its_work(round_: Round) -> None:
    round_.start_worker()
    asleep = "SELECT 1 FROM cb_workers WHERE sleeping_since IS NOT NULL"
    round_.until(lambda: round_.query(asleep), what="sleep")
    for _ in range(3):
        if end_sessions(round_, "query ~ 'LISTEN'"):
            round_.saw("the listener was cut off")
        queued_at = time.time()
        run_id = round_.run("note")
        round_.recoveries.append(round(round_.until_begun(run_id, seconds=5) - queued_at, 2))
        time.sleep(0.2)


@scenario("no connection was left", alone=True)
def leases_are_kept_while_no_connection_is_left(round_: Round) -> None:
    round_.start_worker()
    run_id = round_.run("note", {"seconds": LEASE + 1.5})
    round_.until_begun(run_id)
    others = round_.load(10, seconds=0.05)
    with ExitStack() as sessions:
        try:
            while True:
                sessions.enter_context(psycopg.connect(round_.cluster.url(round_.database)))
        except psycopg.OperationalError:
            round_.saw("no connection was left")
        time.sleep(LEASE + 0.5)

    round_.until_ended([run_id, *others])
    round_.expect_counts(run_id, deliveries=1)


@scenario("the database was read-only", "a worker was refused", alone=True)
def workers_wait_while_the_database_is_read_only(round_: Round) -> None:
    worker = round_.start_worker()
    runs = round_.load(60, seconds=0.1)
    round_.until(lambda: completed(round_) > 5)
    round_.cluster.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    try:
        round_.cluster.execute("SELECT pg_reload_conf()")
        round_.saw("the database was read-only")
        time.sleep(LEASE + 1)
    finally:
        round_.cluster.execute("ALTER SYSTEM RESET default_transaction_read_only")
        round_.cluster.execute("SELECT pg_reload_conf()")
    if "trying again" in worker.said():
        round_.saw("a worker was refused")

    goes_on(round_)
    round_.until_ended(runs)
    round_.expect(worker.is_alive, "the worker has ended")
    round_.expect(len(worker.said().splitlines()) < 100, "the worker was in a busy loop")


@scenario("the table was locked")
def workers_wait_while_an_administrator_locks_the_table(round_: Round) -> None:
    round_.start_worker(wait=False)
    round_.start_worker()
    runs = round_.load(60, seconds=0.1)
    round_.until(lambda: completed(round_) > 5)
    with round_.cluster.admin(round_.database) as session, session.transaction():
        session.execute("LOCK TABLE cb_task_runs IN ACCESS EXCLUSIVE MODE")
        round_.saw("the table was locked")
        time.sleep(LEASE + 1)

    goes_on(round_)
    round_.until_ended(runs)


@scenario("the server fell silent", alone=True)
def a_sleeping_worker_finds_out_that_its_sessions_are_silent(round_: Round) -> None:
    """Half-open: its sockets stay and take what it sends, and nothing comes back. New ones are served."""
    round_.start_worker()
    round_.until_ended([round_.run("echo", 1)])
    round_.until(lambda: round_.query("SELECT 1 FROM cb_workers WHERE sleeping_since IS NOT NULL"), what="sleep")
    idle = (
        "SELECT pid FROM pg_stat_activity WHERE datname = %s AND usename = %s AND state = 'idle'"
        " AND wait_event = 'ClientRead'"
    )
    silent = [pid for (pid,) in round_.query(idle, [round_.database, WORKER_ROLE])]
    for pid in silent:
        os.kill(pid, signal.SIGSTOP)
    try:
        round_.seen["the server fell silent"] += len(silent)
        since = time.time()
        run_id = round_.run("note")
        round_.recoveries.append(round(round_.until_begun(run_id, seconds=30) - since, 2))
        round_.until_ended([run_id], seconds=30)
    finally:
        for pid in silent:
            os.kill(pid, signal.SIGCONT)
