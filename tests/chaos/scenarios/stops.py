"""SIGTERM at the best and the worst of moments (RELIABILITY 05, W4)."""

from __future__ import annotations

import signal
import time

from tests.chaos.processes import GRACE, WorkerProcess
from tests.chaos.rounds import Round
from tests.chaos.scenario import scenario


def terminate(round_: Round, worker: WorkerProcess, *, within: float) -> None:
    """Ask a worker to stop: it must end with 0 in time, and hold nothing then."""
    worker_id = worker.worker_id
    worker.send(signal.SIGTERM)
    code = worker.wait(within)
    round_.expect(code == 0, f"it ended with {code}")
    held = round_.query("SELECT id FROM cb_task_runs WHERE lease_until IS NOT NULL AND worker_id = %s", [worker_id])
    round_.expect(not held, f"it still holds {held}")


@scenario("stopped while asleep")
def an_idle_worker_stops_at_once(round_: Round) -> None:
    worker = round_.start_worker()
    round_.until(lambda: round_.query("SELECT 1 FROM cb_workers WHERE sleeping_since IS NOT NULL"))
    round_.saw("stopped while asleep")

    terminate(round_, worker, within=GRACE)

    round_.expect(round_.query("SELECT 1 FROM cb_workers WHERE stopped_at IS NOT NULL"), "it did not say goodbye")


@scenario("stopped in a handler")
def a_busy_worker_finishes_what_runs_and_gives_back_the_rest(round_: Round) -> None:
    worker = round_.start_worker("--concurrency", "1")
    first = round_.run("note", {"seconds": 2})
    round_.until_begun(first)
    second = round_.run("note", {"seconds": 0.1})
    round_.saw("stopped in a handler")

    terminate(round_, worker, within=GRACE + 5)

    round_.expect(round_.column("status", [first, second]) == ["completed", "queued"], "it did otherwise")


@scenario("outlived the grace")
def a_handler_that_outlives_the_grace_is_given_back_uncharged(round_: Round) -> None:
    worker = round_.start_worker(settings={"SHUTDOWN_GRACE": 0.5})
    runs = [round_.run(task, {"seconds": 4}) for task in ("note", "anote")]
    for run_id in runs:
        round_.until_begun(run_id)
    round_.saw("outlived the grace")

    terminate(round_, worker, within=0.5 + 5)

    for run_id in runs:
        round_.expect_counts(run_id, deliveries=1)
    round_.expect(round_.column("status", runs) == ["queued"] * 2, "they were not given back")


@scenario("told twice")
def a_second_signal_stops_at_once_and_the_lease_brings_the_run_back(round_: Round) -> None:
    worker = round_.start_worker()
    run_id = round_.run("note", {"seconds": 4})
    round_.until_begun(run_id)

    worker.send(signal.SIGTERM)
    worker.send(signal.SIGINT)  # two of one number at the same moment are one
    code = worker.wait(GRACE)
    died_at = time.time()

    round_.expect(code in (128 + signal.SIGTERM, 128 + signal.SIGINT), f"it ended with {code}")
    round_.saw("told twice")
    round_.start_worker()
    round_.recovered(run_id, since=died_at)


@scenario("stopped without a database", alone=True)
def a_worker_stops_in_time_though_the_database_is_down(round_: Round) -> None:
    worker = round_.start_worker(settings={"SHUTDOWN_GRACE": 1})
    run_id = round_.run("echo", 1)
    round_.until_ended([run_id])
    held = round_.run("note", {"seconds": 0.5})
    round_.until_begun(held)
    round_.cluster.crash()
    try:
        worker.send(signal.SIGTERM)
        code = worker.wait(1 + 5 + 1)
        round_.saw("stopped without a database")
        round_.expect(code == 0, f"it ended with {code}")
    finally:
        round_.cluster.start()

    round_.start_worker()

    round_.until_ended([held])


@scenario("after-claim:sleep-1:1")
def a_worker_that_is_told_to_stop_while_it_claims_gives_everything_back(round_: Round) -> None:
    runs = round_.load(8, seconds=0.1)
    worker = round_.start_worker(failpoint="after-claim:sleep-1:1", wait=False)
    round_.until(lambda: worker.fired(), what="a claim")

    terminate(round_, worker, within=GRACE + 5)

    round_.expect(set(round_.column("lost_count", runs)) == {0}, "a claim was lost")


@scenario("waited for a lock")
def a_worker_that_is_told_to_stop_while_its_claim_waits_holds_nothing(round_: Round) -> None:
    """django-tasks-db#61: a signal inside the claim's transaction left its row running for ever."""
    worker = round_.start_worker()
    round_.until_ended([round_.run("echo", 1)])
    with round_.cluster.admin(round_.database) as session, session.transaction():
        session.execute("LOCK TABLE cb_task_runs IN ACCESS EXCLUSIVE MODE")
        waits = (
            "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock' AND query ~ '_lanes|_claim'"
        )
        round_.until(lambda: round_.query(waits, [round_.database]), what="a claim that waits")
        round_.saw("waited for a lock")
        worker.send(signal.SIGTERM)
        time.sleep(0.5)

    code = worker.wait(GRACE + 5)

    round_.expect(code == 0, f"it ended with {code}")
    round_.expect(not round_.query("SELECT 1 FROM cb_task_runs WHERE lease_until IS NOT NULL"), "something is held")
