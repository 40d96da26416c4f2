"""The checks after a round find what they are there to find, and the page about faults names every scenario."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from django.test import override_settings
from pytest_django.plugin import DjangoDbBlocker

from tests.chaos.campaign import Result, play, summary
from tests.chaos.cluster import CHECKOUT, LEDGER, Cluster
from tests.chaos.conftest import ALL_EVENTS
from tests.chaos.rounds import Round
from tests.chaos.scenario import Scenario, Skipped, all_scenarios

Play = Callable[[Callable[[Round], None]], Result]


@pytest.fixture
def played(cluster: Cluster, django_db_blocker: DjangoDbBlocker) -> Play:
    """Play a function as a scenario that must see `the fault`."""

    def play_it(function: Callable[[Round], None]) -> Result:
        with django_db_blocker.unblock(), override_settings(CATBIRD=ALL_EVENTS):
            scenario = Scenario("made_up", function, ("the fault",), is_alone=True)
            return play(cluster, scenario, seed=1, is_short=True)

    return play_it


def complete(round_: Round, run_id: int) -> None:
    """Write a run as if it had been completed."""
    round_.cluster.execute(
        "UPDATE cb_task_runs SET status = 'completed', output = '1', finished_at = clock_timestamp();"
        "INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor)"
        f" VALUES (clock_timestamp(), 'task', {run_id}, 'completed', 'started', 'completed', 'worker')",
        database=round_.database,
    )


def test_a_round_in_which_all_is_well_has_no_problem(played: Play) -> None:
    def fault(round_: Round) -> None:
        complete(round_, round_.run("echo", 1))
        round_.saw("the fault")

    assert played(fault).problem == ""


def test_a_round_in_which_the_fault_did_not_happen_is_void(played: Play) -> None:
    assert "void, because it never happened: the fault" in played(lambda _: None).problem


def test_a_run_that_is_gone_is_found(played: Play) -> None:
    def fault(round_: Round) -> None:
        run_id = round_.run("echo", 1)
        statement = "DELETE FROM cb_task_runs; DELETE FROM cb_events"
        round_.cluster.execute(statement, database=round_.database)
        round_.accepted = [run_id]
        round_.saw("the fault")

    assert "run 1 was accepted, and is gone" in played(fault).problem


def test_a_second_completion_is_found(played: Play) -> None:
    def fault(round_: Round) -> None:
        run_id = round_.run("echo", 1)
        complete(round_, run_id)
        complete(round_, run_id)
        round_.saw("the fault")

    problem = played(fault).problem

    assert "run 1 has 2 completions" in problem
    assert "doctor: completed_twice" in problem


def test_an_execution_without_a_claim_is_found(played: Play) -> None:
    def fault(round_: Round) -> None:
        run_id = round_.run("echo", 1)
        round_.cluster.execute(
            f"INSERT INTO {round_.database}.fx (word, run, attempt, pid, phase)"
            f" VALUES (gen_random_uuid(), {run_id}, 1, 1, 'begin')",
            database=LEDGER,
        )
        round_.cluster.execute(
            "UPDATE cb_task_runs SET status = 'canceled', finished_at = now()", database=round_.database
        )
        round_.saw("the fault")

    assert "run 1 was delivered 0 times, and begun 1 times" in played(fault).problem


def test_what_is_wrong_with_items_of_maps_is_found(played: Play) -> None:
    def fault(round_: Round) -> None:
        round_.start_worker()
        [run_id] = round_.run_flows("note_each", [0.0, 0.0])
        round_.until_flows_ended([run_id])
        round_.cluster.execute(
            "INSERT INTO cb_events (at, run_kind, run_id, event, from_status, to_status, actor)"
            " SELECT now(), 'item', id, 'completed', 'started', 'completed', 'worker' FROM cb_items WHERE index = 0",
            database=round_.database,
        )
        round_.cluster.execute(
            f"INSERT INTO {round_.database}.fx (word, run, attempt, pid, phase, part)"
            f" VALUES (gen_random_uuid(), {run_id}, 1, 1, 'begin', 'item 1')",
            database=LEDGER,
        )
        round_.saw("the fault")

    problem = played(fault).problem

    assert "item 0 of run 1 has 2 completions" in problem
    assert "item 1 of run 1 was delivered 1 times, and begun 2 times" in problem


def test_late_recovery_is_a_problem(played: Play) -> None:
    def fault(round_: Round) -> None:
        round_.start_worker()
        run_id = round_.run("note")
        round_.recovered(run_id, since=round_.until_begun(run_id) - 60, attempt=1, within=-60)

    assert "work went on after" in played(fault).problem


def test_what_the_machine_cannot_do_is_skipped_with_the_reason(played: Play) -> None:
    def fault(_: Round) -> None:
        raise Skipped("no such thing here")

    result = played(fault)

    assert (result.problem, result.skipped) == ("", "no such thing here")
    assert "skipped: no such thing here" in summary([result])


def test_the_page_about_faults_names_every_scenario_and_no_other() -> None:
    page = (CHECKOUT / "docs" / "explanation" / "what-happens-when.md").read_text()

    named = {name for name in re.findall(r"`([a-z0-9_]+)`", page) if name.count("_") > 2}

    assert named == set(all_scenarios())


def chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.chaos", *arguments]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=60)


def test_the_command_names_scenarios_by_parts_of_their_names() -> None:
    named = chaos("--list", "--only", "kill-9, leaks").stdout.split()

    assert named == ["a_run_outlives_kill_9_in_its_handler", "many_runs_through_one_worker_leave_no_leaks"]


def test_a_name_that_no_scenario_has_is_a_mistake() -> None:
    result = chaos("--only", "meteor")

    assert result.returncode == 2
    assert "no scenario has 'meteor' in its name" in result.stderr
