"""The server is there, and peculiar: conflicts, timeouts, odd settings, large ids (RELIABILITY 23, 25, 28, 33-35)."""

from __future__ import annotations

import subprocess
import time

from project.embedded.server import SUPERUSER
from tests.chaos.cluster import LEDGER, WORKER_ROLE
from tests.chaos.rounds import Round
from tests.chaos.scenario import scenario
from tests.chaos.sessions import completed, end_sessions, set_for_workers


@scenario("an old transaction")
def work_goes_on_beside_an_old_transaction(round_: Round) -> None:
    round_.start_worker()
    with round_.cluster.admin(round_.database) as session, session.transaction():
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT pg_current_xact_id(), count(*) FROM cb_task_runs")
        round_.saw("an old transaction")
        runs = round_.run_many("echo", 1000, "1") + round_.load(40, seconds=0.01)
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

    round_.until_ended(runs)
    round_.seen["a statement took too long"] += round_.refusals("statement timeout")
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
    round_.seen["conflicts"] += round_.refusals("could not serialize access")
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
        # Many at once, too: their ids are told by NOTIFY, whose payload is short.
        runs = [*round_.load(20, seconds=0.01), round_.run("stumble", None), *round_.run_many("echo", 1500, "1")]
        round_.until_ended(runs)
        round_.expect(set(round_.column("status", runs)) == {"completed"}, "a run did not complete")
        if max(runs) > number + 5:
            round_.saw(fault)
        round_.stop(worker)


@scenario("dumped under load")
def a_dump_made_under_load_goes_on_where_it_was(round_: Round) -> None:
    worker = round_.start_worker()
    round_.load(60, seconds=0.5)
    round_.until(lambda: completed(round_) > 5)
    where = ["-h", round_.cluster.socket_directory, "-U", SUPERUSER]
    dump = round_.cluster.home / f"{round_.database}.dump"
    programs = round_.cluster.binaries
    subprocess.run([programs.program("pg_dump"), *where, "-Fc", "-f", dump, round_.database], check=True)
    worker.kill()
    end_sessions(round_)

    # Elsewhere is here: the database is dropped, and comes back as it was dumped.
    round_.cluster.drop(round_.database)
    round_.cluster.execute(f"CREATE DATABASE {round_.database} OWNER {WORKER_ROLE}")
    subprocess.run([programs.program("pg_restore"), *where, "-d", round_.database, dump], check=True)
    if round_.query("SELECT 1 FROM cb_task_runs WHERE status = 'started'"):
        round_.saw("dumped under load")

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
    runs = [*round_.load(60, seconds=0.05), *(round_.run("stumble", None) for _ in range(5))]

    round_.until_ended(runs)

    round_.seen["a deadlock"] += round_.refusals("a deadlock, they say")
    round_.expect(set(round_.column("status", runs)) == {"completed"}, "a conflict was charged to a run")
    round_.expect(max(round_.column("lost_count", runs)) == 0, "a lease was lost")
    round_.expect(worker.is_alive, "the worker has ended")
