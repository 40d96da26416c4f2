"""Those who queue runs, and those who tidy up (RELIABILITY 50, 58, 61, 62, 69)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import timedelta

from django.db import connections, transaction

from catbird_django.engine.retention import prune_tasks
from tests.chaos.checks import TERMINAL
from tests.chaos.cluster import CHECKOUT
from tests.chaos.processes import LEASE
from tests.chaos.rounds import Round
from tests.chaos.scenario import scenario


def client(round_: Round, *arguments: str) -> str:
    """Run a client process; return what it printed."""
    command = [sys.executable, "-m", "tests.chaos.client", *arguments]
    environment = round_.cluster.environment(round_.database)
    return subprocess.run(command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True).stdout


@scenario("eight raced for a key")
def eight_processes_that_race_for_keys_get_one_run_for_each(round_: Round) -> None:
    """RELIABILITY, fact 1: the textbook statement answers NULL to about half of those who race."""
    count = 100 if round_.is_short else 400
    for kind in ("idempotency_key", "concurrency_key"):
        answers: list[list[int | None]] = json.loads(client(round_, "race", kind, str(count)))
        for ids in zip(*answers, strict=True):
            round_.expect(None not in ids, "somebody got no run")
            round_.expect(len(set(ids)) == 1, f"one key, and the runs {set(ids)}")
            round_.accepted.append(ids[0])  # type: ignore[arg-type]
        round_.expect(len(answers) == 8 and len(answers[0]) == count, "not everybody answered")
        round_.saw("eight raced for a key")
    [(stored,)] = round_.query("SELECT count(*) FROM cb_task_runs")
    round_.expect(stored == 2 * count, f"{stored} runs for {2 * count} keys")


@scenario("rolled back")
def what_is_rolled_back_never_runs(round_: Round) -> None:
    round_.start_worker()
    before = len(round_.accepted)
    try:
        with transaction.atomic(using=round_.using):
            lost = [_run_inside(round_), _run_inside(round_)]
            raise InterruptedError
    except InterruptedError:
        round_.saw("rolled back")
    with transaction.atomic(using=round_.using):
        kept = _run_inside(round_)
        try:
            with transaction.atomic(using=round_.using):
                lost.append(_run_inside(round_))
                raise InterruptedError
        except InterruptedError:
            round_.saw("rolled back")
    connections[round_.using].close()
    round_.accepted[before:] = [kept]
    round_.until_ended([kept])

    round_.expect(
        not round_.query("SELECT 1 FROM cb_task_runs WHERE id = ANY (%s)", [lost]), "what was undone is there"
    )
    round_.expect([run for run, _, _, phase in round_.effects() if phase == "begin"] == [kept], "what was undone ran")


def _run_inside(round_: Round) -> int:
    from catbird_django import run_task

    return run_task("note", {}, using=round_.using).id


@scenario("died after its commit")
def what_was_committed_runs_though_the_client_died_at_once(round_: Round) -> None:
    round_.start_worker()
    run_id = int(client(round_, "commit-and-die").strip())
    round_.accepted.append(run_id)
    round_.saw("died after its commit")

    round_.until_ended([run_id])

    round_.expect_counts(run_id, deliveries=1)


@scenario("pruned while runs waited")
def retention_removes_only_what_has_ended(round_: Round) -> None:
    round_.start_worker()
    runs = [*round_.load(20, seconds=0.05), *(round_.run("stumble", None) for _ in range(5))]
    runs += [round_.run("note", {}, delay=delay) for delay in (0.5, 1, 1.5)]
    long = round_.run("note", {"seconds": 2})
    removed = 0
    while round_.query("SELECT 1 FROM cb_task_runs"):
        removed += sum(count for count, _ in prune_tasks(TERMINAL, timedelta(0), using=round_.using))
        connections[round_.using].close()
        time.sleep(0.2)
    if removed:
        round_.saw("pruned while runs waited")

    ended = {run for run, _, _, phase in round_.effects() if phase == "end"}
    round_.accepted.clear()  # they are gone, and the ledger knows that each had its turn
    round_.expect(removed == len(runs) + 1, f"{removed} of {len(runs) + 1} were removed")
    round_.expect(ended == {*runs, long}, f"never ended: {({*runs, long}) - ended}")


@scenario("its row was gone")
def a_worker_whose_row_is_deleted_keeps_its_claims(round_: Round) -> None:
    round_.start_worker()
    run_id = round_.run("note", {"seconds": LEASE + 1})
    round_.until_begun(run_id)
    if round_.query("DELETE FROM cb_workers RETURNING id"):
        round_.saw("its row was gone")
    round_.start_worker()
    after = round_.run("note")

    round_.until_ended([run_id, after])

    round_.expect_counts(run_id, deliveries=1)


@scenario("a result was refused")
def a_result_that_cannot_be_stored_fails_alone(round_: Round) -> None:
    """F4a: of a batch, ninety-nine complete at the first delivery."""
    constraint = "ALTER TABLE cb_task_runs ADD CONSTRAINT chaos_refuses CHECK (output IS DISTINCT FROM '42'::jsonb)"
    round_.cluster.execute(constraint, database=round_.database)
    runs = [round_.run("echo", number) for number in range(100)]
    round_.start_worker()

    round_.until_ended(runs)

    statuses = round_.column("status", runs)
    round_.expect(statuses[42] == "failed" and statuses.count("completed") == 99, f"{statuses}")
    round_.expect(set(round_.column("delivery_count", runs)) == {1}, "neighbours were delivered again")
    round_.saw("a result was refused")


@scenario("all failed at first")
def a_storm_of_retries_comes_to_rest(round_: Round) -> None:
    worker = round_.start_worker()
    runs = round_.run_many("stumble", 200 if round_.is_short else 2000, "null")
    most = 0
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND usename = 'app'"
    while round_.query("SELECT 1 FROM cb_task_runs WHERE status <> 'completed' LIMIT 1"):
        most = max(most, int(round_.query(sessions, [round_.database])[0][0]))
        time.sleep(0.1)
        round_.expect(worker.is_alive, "the worker has ended")

    round_.expect(set(round_.column("failure_count", runs)) == {1}, "not each has failed once")
    round_.expect(most <= 15, f"{most} sessions were open")
    round_.saw("all failed at first")
