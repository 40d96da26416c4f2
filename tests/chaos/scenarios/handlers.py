"""Handlers that do what they should not (RELIABILITY 11-13, 55, T8, W7)."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.rounds import Round
from tests.chaos.scenario import scenario

UNSTORABLE = ("nul", "surrogate", "too large", "nan", "infinite number", "object", "deep")
LEAVING = ("sys.exit", "keyboard interrupt", "recursion", "generator exit")
SPEECHLESS = ("unspeakable", "verbose", "nul in the message")
SPOILED = (
    "aborted",
    "closed",
    "autocommit off",
    "inside atomic",
    "raw transaction",
    "search path",
    "role",
    "statement timeout",
    "terminated",
)
CRASHES = ("os._exit", "segmentation fault", "killed", "sys.exit", "too much memory")
LONGEST_ERROR = 64 * 1024


def fail_by(round_: Round, *tricks: str) -> None:
    """Each trick, sync and async, fails its run with a bounded message, and the worker goes on."""
    # A text of 50 MB keeps the whole process busy for a while: the short lease is not what this is about.
    worker = round_.start_worker(settings={"LEASE": 30})
    for how in tricks:
        runs = [round_.run(task, {"how": how}) for task in ("misbehave", "amisbehave")]
        round_.until_ended(runs)
        for row in map(round_.row, runs):
            round_.expect(row["status"] == "failed", f"{how}: it is {row['status']}")
            round_.expect(len(str(row["error"])) < LONGEST_ERROR, f"{how}: a long story")
            round_.expect_counts(row["id"], deliveries=1, failures=1)
        round_.saw(how)
    after = round_.load(20, seconds=0.01)
    round_.until_ended(after)
    round_.expect(worker.is_alive, "the worker has ended")


@scenario(*UNSTORABLE)
def results_that_cannot_be_stored_fail_their_run(round_: Round) -> None:
    fail_by(round_, *UNSTORABLE)


@scenario(*LEAVING)
def handlers_that_try_to_leave_fail_and_the_worker_stays(round_: Round) -> None:
    fail_by(round_, *LEAVING)


@scenario(*SPEECHLESS)
def errors_that_cannot_be_told_are_told_in_short(round_: Round) -> None:
    fail_by(round_, *SPEECHLESS)


@scenario(*SPOILED)
def a_spoiled_connection_is_nobody_elses_problem(round_: Round) -> None:
    """One slot, so that whoever comes next gets the same thread."""
    worker = round_.start_worker("--concurrency", "1")
    for how in SPOILED:
        spoiler = round_.run("spoil_the_connection", {"how": how})
        after = round_.run_many("look_at_the_tables", 100 // len(SPOILED) + 1, "null")
        round_.until_ended([spoiler, *after])
        problems = {str(error)[:300] for error in round_.column("error", after) if error}
        round_.expect(not problems, f"{how}: {problems}")
        round_.saw(how)
    round_.expect(worker.is_alive, "the worker has ended")


@scenario("fork", "threads", "directory", "daemon")
def handlers_that_leave_things_behind_do_not_stop_the_worker(round_: Round) -> None:
    worker = round_.start_worker()
    for how in ("fork", "threads", "directory", "daemon"):
        runs = [round_.run("litter", {"how": how}), *round_.load(10, seconds=0.01)]
        round_.until_ended(runs)
        round_.expect(set(round_.column("status", runs)) == {"completed"}, f"{how}: a run did not complete")
        round_.saw(how)
    directory = Path(f"/proc/{worker.pid}/cwd")
    round_.expect(not directory.exists() or directory.resolve() == Path("/"), "the directory was not changed")


@scenario(*CRASHES)
def a_handler_that_crashes_in_a_process_of_its_own_fails_alone(round_: Round) -> None:
    worker = round_.start_worker()
    neighbours = round_.load(40, seconds=0.2)
    runs = [round_.run("crash", {"how": how}) for how in CRASHES]

    round_.until_ended(runs + neighbours)

    for how, row in zip(CRASHES, map(round_.row, runs), strict=True):
        round_.expect(row["status"] == "failed", f"{how}: it is {row['status']}")
        round_.expect_counts(row["id"], deliveries=1, failures=1)
        round_.saw(how)
    round_.expect(set(round_.column("status", neighbours)) == {"completed"}, "a neighbour did not complete")
    round_.expect(worker.is_alive, "the worker has ended")


@scenario("busy", "deaf", "on the loop", "in a process")
def a_handler_that_never_returns_gives_its_slot_back(round_: Round) -> None:
    """One slot: what comes next needs it."""
    worker = round_.start_worker("--concurrency", "1", settings={"INTERRUPT_GRACE": 0.5})
    ways = {
        "busy": "never_return",
        "deaf": "never_return",
        "on the loop": "anever_return",
        "in a process": "never_return_from_a_process",
    }
    for how, task in ways.items():
        stuck = round_.run(task, {"how": how})
        after = [round_.run("note"), round_.run("anote")]
        round_.until_ended([stuck, *after], seconds=10)
        row = round_.row(stuck)
        round_.expect(row["status"] == "failed" and row["error"]["type"] == "HandlerTimeout", f"{how}: {row['error']}")
        round_.saw(how)
    round_.expect(worker.is_alive, "the worker has ended")
