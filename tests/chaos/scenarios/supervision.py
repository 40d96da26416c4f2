"""Worker processes under a supervisor, and what happens when one of them is killed (W1, W8)."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.chaos.processes import GRACE
from tests.chaos.rounds import Round
from tests.chaos.scenario import scenario
from tests.conftest import is_alive


def living(round_: Round) -> list[int]:
    """The worker processes that have registered and are alive."""
    registered = [pid for (pid,) in round_.query("SELECT pid FROM cb_workers")]
    return [pid for pid in registered if is_working(pid)]


def is_working(pid: int) -> bool:
    """Whether it is alive; where one can see, not only as a zombie that nobody has seen off."""
    if not Path("/proc/self/stat").exists():
        return is_alive(pid)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@scenario("a worker process was killed")
def a_supervisor_replaces_a_worker_process_that_was_killed(round_: Round) -> None:
    supervisor = round_.start_worker("--processes", "2")
    round_.until(lambda: len(living(round_)) == 2, what="two worker processes")
    run_id = round_.run("note", {"seconds": 2})
    round_.until_begun(run_id)
    [(_, _, victim, _)] = round_.effects(run_id)
    os.kill(victim, signal.SIGKILL)
    killed_at = time.time()
    round_.saw("a worker process was killed")

    round_.recovered(run_id, since=killed_at)
    round_.until(lambda: len(living(round_)) == 2, what="another worker process")
    round_.until_ended([run_id])
    round_.stop(supervisor)
    round_.expect(not living(round_), "a worker process has outlived its supervisor")


@scenario("the supervisor was killed")
def worker_processes_stop_in_order_when_their_supervisor_is_killed(round_: Round) -> None:
    supervisor = round_.start_worker("--processes", "2")
    round_.until(lambda: len(living(round_)) == 2, what="two worker processes")
    runs = round_.load(6, seconds=0.7)
    for run_id in runs:
        round_.until_begun(run_id)
    supervisor.kill()
    round_.saw("the supervisor was killed")

    round_.until(lambda: not living(round_), seconds=GRACE + 6, what="the end of its worker processes")

    round_.expect(set(round_.column("status", runs)) == {"completed"}, "what ran was not finished")
    for run_id in runs:
        round_.expect_counts(run_id, deliveries=1)
