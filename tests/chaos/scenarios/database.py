"""The database goes away, refuses, or is slow (RELIABILITY 16-18, 22-29, 32-35, W5)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack

import psycopg

from project.embedded.server import SUPERUSER
from tests.chaos.cluster import LEDGER, WORKER_ROLE
from tests.chaos.processes import LEASE, RECOVERY_BOUND
from tests.chaos.rounds import Round
from tests.chaos.scenario import scenario

COMPLETED = "SELECT count(*) FROM cb_task_runs WHERE status = 'completed'"


def goes_on(round_: Round, *, within: float = RECOVERY_BOUND + 4) -> None:
    """Note how long it takes from now until one more run is completed."""
    began = time.monotonic()
    before = completed(round_)
    round_.until(lambda: completed(round_) > before, seconds=within, what="work")
    round_.recoveries.append(round(time.monotonic() - began, 2))


def completed(round_: Round) -> int:
    return int(round_.query(COMPLETED)[0][0])


def set_for_workers(round_: Round, setting: str, value: str) -> None:
    """Change a setting of the workers' role, for sessions to come."""
    statement = f"ALTER ROLE {WORKER_ROLE} IN DATABASE {round_.database} SET {setting} = '{value}'"
    round_.cluster.execute(statement)


def end_sessions(round_: Round, where: str = "true") -> int:
    """pg_terminate_backend on every session of the workers; return how many there were."""
    return len(
        round_.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE datname = %s AND usename = %s AND pid <> pg_backend_pid() AND {where}",
            [round_.database, WORKER_ROLE],
        )
    )


@scenario("restarted under load", alone=True)
def work_goes_on_after_each_immediate_restart_of_the_server(round_: Round) -> None:
    round_.start_worker(wait=False)
    round_.start_worker()
    restarts = 2 if round_.is_short else 4
    runs = round_.load(60 * restarts, seconds=0.2)
    for _ in range(restarts):
        time.sleep(round_.random.uniform(0.2, 1))
        round_.cluster.restart(down_for=round_.random.uniform(0, 0.5))
        round_.saw("restarted under load")
        goes_on(round_)

    round_.until_ended(runs)


@scenario("in-sweep:sleep-1:1", "restarted in the sweep", alone=True)
def a_restart_in_the_middle_of_a_sweep_only_repeats_it(round_: Round) -> None:
    victim = round_.start_worker()
    run_id = round_.run("note", {"seconds": 0.3})
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


@scenario("an old transaction")
def work_goes_on_beside_an_old_transaction(round_: Round) -> None:
    round_.start_worker()
    with round_.cluster.admin(round_.database) as session, session.transaction():
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT pg_current_xact_id(), count(*) FROM cb_task_runs")
        round_.saw("an old transaction")
        runs = round_.run_many("echo", 1000, "1") + round_.load(40, seconds=0.01)
        round_.until_ended(runs)


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


@scenario("a statement took too long")
def statements_that_are_cut_short_are_repeated(round_: Round) -> None:
    worker = round_.start_worker()
    set_for_workers(round_, "statement_timeout", "50ms")
    end_sessions(round_)
    runs = round_.load(40, seconds=0.05)
    for _ in range(3):
        with round_.cluster.admin(round_.database) as session, session.transaction():
            session.execute("LOCK TABLE cb_task_runs IN ACCESS EXCLUSIVE MODE")
            time.sleep(0.4)
        time.sleep(0.1)
    if "statement timeout" in round_.cluster.said():
        round_.saw("a statement took too long")

    round_.until_ended(runs)
    round_.expect(worker.is_alive, "the worker has ended")


@scenario("ran serializable")
def serializable_workers_lose_nothing(round_: Round) -> None:
    set_for_workers(round_, "default_transaction_isolation", "serializable")
    for _ in range(2):
        round_.start_worker("--concurrency", "2", wait=False)
    asked = round_.run("ask", "transaction_isolation")
    runs = round_.load(60, seconds=0.01) + [round_.run("stumble", None) for _ in range(10)]

    round_.until_ended([asked, *runs])

    if round_.row(asked)["output"] == "serializable":
        round_.saw("ran serializable")
    conflicts = round_.cluster.said().count("could not serialize access")
    round_.seen["conflicts (so far)"] += conflicts
    round_.expect(set(round_.column("status", runs)) == {"completed"}, "a conflict was charged to a run")


@scenario("set otherwise")
def workers_of_a_role_with_unusual_settings_do_the_same(round_: Round) -> None:
    unusual = {
        "DateStyle": "German, DMY",
        "IntervalStyle": "iso_8601",
        "TimeZone": "Asia/Kathmandu",
        "bytea_output": "escape",
        "extra_float_digits": "-15",
        "lc_messages": "C",
        "row_security": "off",
    }
    for setting, value in unusual.items():
        set_for_workers(round_, setting, value)
    round_.start_worker()
    asked = round_.run("ask", "IntervalStyle")
    delayed = round_.run("note", {}, delay=0.5)
    runs = [asked, delayed, round_.run("stumble", None), *round_.load(20, seconds=0.01)]

    round_.until_ended(runs)

    if round_.row(asked)["output"] == "iso_8601":
        round_.saw("set otherwise")
    round_.expect(set(round_.column("status", runs)) == {"completed"}, "a run did not complete")


@scenario("past 2^31", "past 2^53")
def ids_past_32_and_53_bits_do_no_harm(round_: Round) -> None:
    for number, fault in ((2**31 - 5, "past 2^31"), (2**53 - 5, "past 2^53")):
        for table in ("cb_task_runs", "cb_events", "cb_workers", "cb_run_logs"):
            round_.cluster.execute(f"ALTER SEQUENCE {table}_id_seq RESTART {number}", database=round_.database)
        worker = round_.start_worker()
        runs = [*round_.load(20, seconds=0.01), round_.run("stumble", None)]
        round_.until_ended(runs)
        round_.expect(set(round_.column("status", runs)) == {"completed"}, "a run did not complete")
        if max(runs) > number + 5:
            round_.saw(fault)
        round_.stop(worker)


@scenario("dumped under load")
def a_dump_made_under_load_goes_on_where_it_was(round_: Round) -> None:
    worker = round_.start_worker()
    round_.load(60, seconds=0.2)
    round_.until(lambda: completed(round_) > 5)
    where = ["-h", round_.cluster.socket_directory, "-U", SUPERUSER]
    dump = round_.cluster.home / f"{round_.database}.dump"
    programs = round_.cluster.binaries
    subprocess.run([programs.program("pg_dump"), *where, "-Fc", "-f", dump, round_.database], check=True)
    if round_.query("SELECT 1 FROM cb_task_runs WHERE status = 'started'"):
        round_.saw("dumped under load")
    worker.kill()
    end_sessions(round_)

    # Elsewhere is here: the database is dropped, and comes back as it was dumped.
    round_.cluster.drop(round_.database)
    round_.cluster.execute(f"CREATE DATABASE {round_.database} OWNER {WORKER_ROLE}")
    subprocess.run([programs.program("pg_restore"), *where, "-d", round_.database, dump], check=True)

    round_.cluster.execute(
        f"TRUNCATE {round_.database}.fx", database=LEDGER
    )  # what was after the dump, nobody remembers
    round_.start_worker()


REFUSE_SOME = """
    CREATE FUNCTION chaos_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF random() < 0.3 THEN
            RAISE EXCEPTION 'a deadlock, they say' USING ERRCODE = '40P01';
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER chaos_refuse AFTER UPDATE ON cb_task_runs FOR EACH STATEMENT EXECUTE FUNCTION chaos_refuse();
"""


@scenario("a deadlock")
def deadlocks_are_repeated_and_charged_to_nobody(round_: Round) -> None:
    round_.cluster.execute(REFUSE_SOME, database=round_.database)
    worker = round_.start_worker()
    before = round_.cluster.said().count("a deadlock, they say")
    runs = [*round_.load(60, seconds=0.05), *(round_.run("stumble", None) for _ in range(5))]

    round_.until_ended(runs)

    round_.seen["a deadlock"] += round_.cluster.said().count("a deadlock, they say") - before
    round_.expect(set(round_.column("status", runs)) == {"completed"}, "a conflict was charged to a run")
    round_.expect(max(round_.column("lost_count", runs)) == 0, "a lease was lost")
    round_.expect(worker.is_alive, "the worker has ended")


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
