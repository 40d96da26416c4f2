"""Workers that die or freeze while they hold items of maps, and in atomic steps (F14, F17, F22, R8a)."""

from __future__ import annotations

import signal
import time

from tests.chaos.processes import WorkerProcess
from tests.chaos.rounds import Round
from tests.chaos.scenario import scenario
from tests.chaos.scenarios.deaths import wait_for_death

KILLS = 20  # in one round
QUICK = {"LEASE": 1.5}
MOMENTS = ["before-handler", "after-handler", "before-settle", "before-settle-commit", "after-settle", ""]


@scenario("killed between items")
def a_map_goes_on_where_its_killed_worker_was(round_: Round) -> None:
    """What was completed stays so, and is not run again."""
    victim = round_.start_worker()
    [run_id] = round_.run_flows("note_each", [0.01] * 300)
    wanted = round_.random.randint(10, 150)
    round_.until(lambda: round_.items(run_id, "completed") >= wanted, what="some items")
    victim.kill()
    done = completed_items(round_, run_id)
    if 0 < len(done) < 300:
        round_.saw("killed between items")

    round_.start_worker()

    round_.until_flows_ended([run_id])
    begun = [index for _, index, _, _, phase in round_.item_effects() if phase == "begin"]
    round_.expect(all(begun.count(index) == 1 for index in done), "an item that was completed was run again")
    [(output,)] = round_.query("SELECT output FROM cb_flow_runs WHERE id = %s", [run_id])
    round_.expect(output == 300, f"it counted {output} items")


def completed_items(round_: Round, run_id: int) -> list[int]:
    rows = round_.query("SELECT index FROM cb_items WHERE flow_run_id = %s AND status = 'completed'", [run_id])
    return [index for (index,) in rows]


@scenario("frozen with items", "a stale result")
def a_worker_that_was_frozen_with_items_changes_none_of_them(round_: Round) -> None:
    zombie = round_.start_worker("--concurrency", "3")
    [run_id] = round_.run_flows("note_each", [1.0] * 9)
    round_.until(lambda: len(round_.item_effects()) >= 3, what="the first items")
    zombie.send(signal.SIGSTOP)
    held = round_.query("SELECT index FROM cb_items WHERE flow_run_id = %s AND status = 'started'", [run_id])
    other = round_.start_worker()
    round_.until_flows_ended([run_id])
    if held:
        round_.saw("frozen with items")

    zombie.send(signal.SIGCONT)

    round_.until(lambda: "claim was lost" in zombie.said(), what="a stale result")
    round_.saw("a stale result")
    rows = round_.query("SELECT index, output FROM cb_items WHERE flow_run_id = %s", [run_id])
    taken_over = [output for index, output in rows if (index,) in held]
    round_.expect({one["pid"] for one in taken_over} == {other.pid}, f"a result of the zombie was taken: {taken_over}")


@scenario("canceled with thousands queued", "killed while it ended them")
def a_map_with_thousands_of_items_is_canceled_though_the_tick_is_killed(round_: Round) -> None:
    """A first worker is killed with the run canceled, a second while it ends the items, a third does the rest."""
    first = round_.start_worker()
    [run_id] = round_.run_flows("note_each", [0.02] * 6000)
    round_.until(lambda: round_.items(run_id, "completed") > 5, what="some items")
    first.send(signal.SIGSTOP)
    round_.cancel_flow(run_id)
    first.kill()
    if round_.flow_status(run_id) == "canceling" and round_.items(run_id, "queued") > 5000:
        round_.saw("canceled with thousands queued")
    over = "SELECT 1 FROM cb_leases WHERE name = 'tick' AND held_until > clock_timestamp()"
    round_.until(lambda: not round_.query(over), what="the end of the lease of the upkeep")
    second = round_.start_worker(failpoint=f"in-sweep:kill:{round_.random.randint(1, 4)}", wait=False)
    wait_for_death(second)
    if round_.flow_status(run_id) == "canceling":
        round_.saw("killed while it ended them")

    round_.start_worker()

    round_.until_flows_ended([run_id])
    round_.expect(round_.flow_status(run_id) == "canceled", f"it is {round_.flow_status(run_id)}")
    ended = round_.items(run_id, "completed") + round_.items(run_id, "canceled")
    round_.expect(ended == 6000, f"{6000 - ended} items have not ended so")
    later = [index for _, index, *_ in round_.item_effects() if index > 5000]
    round_.expect(not later, "items were run although the run was canceled")


@scenario("killed in an atomic step")
def what_an_atomic_step_writes_is_there_once_however_often_it_is_killed(round_: Round) -> None:
    """Before the handler, in it, before the commit and right after it: two rows for each completion, in the end."""
    kills = 6 if round_.is_short else KILLS
    run_ids = round_.run_flows("keep_books", *[round_.random.uniform(0, 0.3) for _ in range(2 * kills)])
    while round_.seen["killed in an atomic step"] < kills:
        moments = round_.random.sample(MOMENTS, 3)
        victims = [start_victim(round_, moment) for moment in moments]
        for victim, moment in zip(victims, moments, strict=True):
            kill_in_a_step(round_, victim, moment)

    round_.start_worker(settings=QUICK)

    round_.until_flows_ended(run_ids, seconds=60)
    check_books(round_)


def start_victim(round_: Round, moment: str) -> WorkerProcess:
    failpoint = f"{moment}:kill:{round_.random.randint(1, 2)}" if moment else None
    return round_.start_worker("--concurrency", "1", failpoint=failpoint, settings=QUICK, wait=False)


def kill_in_a_step(round_: Round, victim: WorkerProcess, moment: str) -> None:
    """Wait until it dies at its failpoint, or kill it at any moment after it has begun with a step."""
    if moment:
        victim.wait(60)
    else:
        round_.until(lambda: victim.pid in pids_of_books(round_), seconds=60, what="a step")
        time.sleep(round_.random.uniform(0, 0.4))
        victim.kill()
    round_.saw("killed in an atomic step")


def pids_of_books(round_: Round) -> set[int]:
    return {pid for _, pid in round_.step_effects("book")}


def check_books(round_: Round) -> None:
    rows = round_.query("""
        SELECT run.id, run.status, count(entry.id)
        FROM cb_flow_runs AS run
        LEFT JOIN auth_group AS entry ON split_part(entry.name, ' ', 1) = run.id::text
        GROUP BY run.id
    """)
    wrong = [row for row in rows if row[1:] != ("completed", 2)]
    round_.expect(not wrong, f"runs, how they ended, and how many rows they have written: {wrong}")
    [(completions,)] = round_.query("SELECT count(*) FROM cb_events WHERE run_kind = 'step' AND event = 'completed'")
    [(written,)] = round_.query("SELECT count(*) FROM auth_group")
    round_.expect(written == 2 * completions == 2 * len(rows), f"{written} rows, {completions} completions")
    round_.seen["rows written"] += written
    round_.seen["completions"] += completions
