"""Workers that die or freeze, at the worst of moments (RELIABILITY 01-08, 10, 14, 17)."""

from __future__ import annotations

import signal
import time

from tests.chaos.processes import LEASE, WorkerProcess
from tests.chaos.rounds import Round
from tests.chaos.scenario import scenario

DIE_WITHIN = 120.0  # its start included


@scenario("killed in a handler")
def a_run_outlives_kill_9_in_its_handler(round_: Round) -> None:
    victim = round_.start_worker()
    run_id = round_.run("note", {"seconds": 2})
    round_.until_begun(run_id)
    time.sleep(round_.random.uniform(0, 0.5))
    killed_at = victim.kill()
    round_.saw("killed in a handler")

    round_.start_worker()

    round_.recovered(run_id, since=killed_at)
    round_.until_ended([run_id])
    round_.expect_counts(run_id, deliveries=2, lost=1)


def die_at(round_: Round, point: str, task: str = "note") -> tuple[int, float]:
    """Let a worker die at a failpoint; return the run it had, and when it died."""
    victim = round_.start_worker(failpoint=f"{point}:kill:1")
    run_id = round_.run(task, {"seconds": 0.1})
    died_at = wait_for_death(victim)
    round_.start_worker()
    return run_id, died_at


def wait_for_death(victim: WorkerProcess) -> float:
    victim.wait(DIE_WITHIN)
    return time.time()


@scenario("after-claim:kill:1")
def a_run_outlives_a_kill_right_after_its_claim(round_: Round) -> None:
    run_id, died_at = die_at(round_, "after-claim")

    round_.recovered(run_id, since=died_at)
    round_.until_ended([run_id])
    round_.expect_counts(run_id, deliveries=2, lost=1)


@scenario("before-handler:kill:1")
def a_run_outlives_a_kill_just_before_its_handler(round_: Round) -> None:
    run_id, died_at = die_at(round_, "before-handler", "anote")

    round_.recovered(run_id, since=died_at)
    round_.until_ended([run_id])
    round_.expect_counts(run_id, deliveries=2, lost=1)


@scenario("after-handler:kill:1")
def a_run_outlives_a_kill_between_handler_and_settlement(round_: Round) -> None:
    run_id, died_at = die_at(round_, "after-handler")

    round_.recovered(run_id, since=died_at)
    round_.until_ended([run_id])
    round_.expect_counts(run_id, deliveries=2, lost=1)


@scenario("before-settle:kill:1")
def a_run_outlives_a_kill_before_its_settlement(round_: Round) -> None:
    run_id, died_at = die_at(round_, "before-settle", "anote")

    round_.recovered(run_id, since=died_at)


@scenario("before-settle-commit:kill:1")
def a_settlement_that_was_not_committed_is_done_again(round_: Round) -> None:
    run_id, died_at = die_at(round_, "before-settle-commit")

    round_.recovered(run_id, since=died_at)
    round_.until_ended([run_id])
    round_.expect_counts(run_id, deliveries=2, lost=1)


@scenario("after-settle:kill:1")
def a_settlement_that_was_committed_is_not_done_again(round_: Round) -> None:
    run_id, _ = die_at(round_, "after-settle")
    after = round_.run("note")  # the other worker is at work

    round_.until_ended([run_id, after])
    time.sleep(LEASE / 2)
    round_.expect_counts(run_id, deliveries=1)
    round_.expect(len(round_.effects(run_id)) == 2, "it was run again")


@scenario("in-sweep:kill:1")
def a_sweep_that_was_killed_is_done_by_another_worker(round_: Round) -> None:
    """A first worker loses a run; a second dies while it takes it back; a third does it."""
    victim = round_.start_worker()
    run_id = round_.run("note", {"seconds": 1.5})
    round_.until_begun(run_id)
    victim.kill()
    round_.until_lease_ran_out(run_id)
    sweeper = round_.start_worker(failpoint="in-sweep:kill:1", wait=False)
    died_at = wait_for_death(sweeper)
    round_.expect(round_.row(run_id)["status"] == "started", "the sweep was not undone")

    round_.start_worker()

    round_.recovered(run_id, since=died_at)
    round_.until_ended([run_id])
    round_.expect_counts(run_id, deliveries=2, lost=1)


@scenario("frozen past its lease", "a stale result", "woke beside another")
def a_frozen_worker_changes_nothing_when_it_wakes(round_: Round) -> None:
    """It wakes when another has finished the short run, and is still at the long one."""
    zombie = round_.start_worker()
    short, long = round_.run("note", {"seconds": 2}), round_.run("note", {"seconds": 4})
    round_.until_begun(short)
    round_.until_begun(long)
    zombie.send(signal.SIGSTOP)
    frozen_at = time.time()
    other = round_.start_worker()
    round_.recovered(short, since=frozen_at)
    round_.saw("frozen past its lease")
    round_.until_ended([short])

    if round_.live([long]):
        round_.saw("woke beside another")
    zombie.send(signal.SIGCONT)

    round_.until(lambda: "claim was lost" in zombie.said(), what="a stale result")
    round_.saw("a stale result")
    round_.until_ended([short, long])
    for run_id in (short, long):
        round_.expect(round_.row(run_id)["output"] == {"attempt": 2, "pid": other.pid}, "the zombie's result was taken")


@scenario("longer than its lease")
def a_handler_longer_than_its_lease_keeps_its_run(round_: Round) -> None:
    round_.start_worker(wait=False)
    round_.start_worker()
    runs = [round_.run(task, {"seconds": 1.5 * LEASE}) for task in ("note", "anote", "block_the_loop")]

    round_.until_ended(runs)

    for run_id in runs:
        round_.expect_counts(run_id, deliveries=1)
    round_.saw("longer than its lease")


@scenario("a worker was lost twice over")
def a_run_that_kills_its_workers_fails_and_its_neighbours_complete(round_: Round) -> None:
    workers = [round_.start_worker("--concurrency", "1", wait=False) for _ in range(3)]
    killer = round_.run("take_the_worker_down", None)
    neighbours = round_.load(20, seconds=0.01)

    round_.until_ended([killer, *neighbours])

    row = round_.row(killer)
    round_.expect(row["status"] == "failed" and row["error"]["type"] == "WorkerLost", f"it is {row['status']}")
    round_.expect_counts(killer, deliveries=2, lost=2)
    round_.expect(set(round_.column("status", neighbours)) == {"completed"}, "neighbours did not complete")
    if sum(not worker.is_alive for worker in workers) == 2:
        round_.saw("a worker was lost twice over")


@scenario("restarted")
def workers_killed_and_restarted_in_quick_succession_lose_nothing(round_: Round) -> None:
    """The same host, the same arguments, a new boot id each time."""
    runs = round_.load(30, seconds=0.2)
    for _ in range(3):
        worker = round_.start_worker()
        round_.until(lambda: round_.query("SELECT 1 FROM cb_task_runs WHERE status = 'started'"))
        worker.kill()
        round_.saw("restarted")

    round_.start_worker()

    round_.until_ended(runs)
