"""Steps of flows and the death of processes: of workers (W3, W4, R5), and of handlers of their own (T8, W7)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from catbird_django import FlowHandle, RunCanceled
from catbird_django.definitions.registry import registry
from catbird_django.models import FlowRun, Item, RunLog, StepRun
from tests.integration.worker_processes import StartWorker, worker_processes
from tests.support import until, work_off, working

with registry.isolated():  # nothing of this is meant for the other tests
    from tests.unruly import flows as unruly

pytestmark = pytest.mark.django_db(transaction=True)

QUICK_RECOVERY = '{"LEASE": 1, "SWEEP_INTERVAL": 0.3, "POLL_INTERVAL": 0.3, "IDLE_POLL_INTERVAL": 0.3}'


@pytest.fixture(autouse=True)
def _unruly_flows(_only_the_tasks_of_the_test: None, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.unruly.settings")
    monkeypatch.setenv("WORKER_PID", str(os.getpid()))
    for flow in (unruly.errand, unruly.trek, unruly.squares, unruly.sieve):
        registry.add_flow(flow.draft)


@pytest.fixture
def start_worker(database_url: str) -> Iterator[StartWorker]:
    with worker_processes(database_url) as start:
        yield start


def steps_taken(place: Path) -> list[str]:
    trace = place / "trace"
    return trace.read_text().split() if trace.exists() else []


def step_run(run: FlowHandle, name: str) -> StepRun:
    return StepRun.objects.get(flow_run_id=run.id, step__name=name)


def test_a_step_whose_worker_is_killed_is_run_by_another_and_nothing_else_is(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    """W3, F4: what was complete stays complete."""
    victim = start_worker("--flows", "trek", CATBIRD=QUICK_RECOVERY)
    run = unruly.trek.run(str(tmp_path))
    until(lambda: "walk" in steps_taken(tmp_path), seconds=30)
    victim.kill()
    victim.wait()

    start_worker("--flows", "trek", CATBIRD=QUICK_RECOVERY)
    until(lambda: steps_taken(tmp_path).count("walk") == 2, seconds=30)
    (tmp_path / "arrived").touch()

    assert run.wait(timeout=20) == 2
    assert steps_taken(tmp_path) == ["pack", "walk", "walk", "rest"]
    walked = step_run(run, "walk")
    assert (walked.delivery_count, walked.lost_count, walked.failure_count) == (2, 1, 0)


def test_a_step_that_outlives_the_grace_is_released_uncharged(start_worker: StartWorker, tmp_path: Path) -> None:
    """W4."""
    worker = start_worker("--flows", "trek", CATBIRD='{"SHUTDOWN_GRACE": 0.3}')
    run = unruly.trek.run(str(tmp_path))
    until(lambda: "walk" in steps_taken(tmp_path), seconds=30)

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=15) == 0
    walked = step_run(run, "walk")
    assert (walked.status, walked.failure_count, walked.lost_count) == ("queued", 0, 0)
    assert FlowRun.objects.get(pk=run.id).status == "started"


def test_a_worker_that_was_frozen_past_its_lease_changes_nothing_when_it_wakes(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    """R5: its result comes back stale."""
    zombie = start_worker("--flows", "trek", CATBIRD=QUICK_RECOVERY)
    run = unruly.trek.run(str(tmp_path))
    until(lambda: "walk" in steps_taken(tmp_path), seconds=30)
    zombie.send_signal(signal.SIGSTOP)
    start_worker("--flows", "trek", CATBIRD=QUICK_RECOVERY)
    until(lambda: steps_taken(tmp_path).count("walk") == 2, seconds=30)
    (tmp_path / "arrived").touch()
    assert run.wait(timeout=20) == 2

    zombie.send_signal(signal.SIGCONT)
    zombie.send_signal(signal.SIGTERM)

    assert zombie.wait(timeout=15) == 0
    assert "claim was lost" in zombie.communicate(timeout=5)[0]
    assert step_run(run, "walk").output == 2
    assert steps_taken(tmp_path).count("rest") == 1


def test_a_kill_between_the_settlement_and_its_commit_loses_nothing_and_does_nothing_twice(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    """F4: before the commit nothing has happened."""
    (tmp_path / "arrived").touch()
    failpoint = {"CATBIRD_TESTING": "1", "CATBIRD_FAILPOINT": "before-settle-commit:kill:2"}
    victim = start_worker("--flows", "trek", CATBIRD=QUICK_RECOVERY, **failpoint)
    run = unruly.trek.run(str(tmp_path))
    assert victim.wait(timeout=30) == -signal.SIGKILL

    start_worker("--flows", "trek", CATBIRD=QUICK_RECOVERY)

    assert run.wait(timeout=20) == 2
    assert steps_taken(tmp_path) == ["pack", "walk", "walk", "rest"]


def test_an_isolated_step_runs_in_another_process_and_its_death_is_a_failed_attempt() -> None:
    run = unruly.errand.run("die once")

    with working():
        pid, attempt = run.wait(timeout=30)

    assert pid != os.getpid()
    assert attempt == 2
    assert step_run(run, "go").failure_count == 1
    assert list(RunLog.objects.values_list("run_kind", "message").order_by("id")) == [
        ("step", "attempt 1"),
        ("step", "attempt 2"),
    ]


def test_an_isolated_step_may_skip_itself_and_cancel_its_flow() -> None:
    skipped, canceled = unruly.errand.run("skip"), unruly.errand.run("cancel")
    work_off(flows=["errand"])

    assert skipped.wait(timeout=5) is None
    assert step_run(skipped, "go").skip_message == "no need to"
    with pytest.raises(RunCanceled):
        canceled.wait(timeout=5)


def test_a_broken_flow_keeps_the_worker_from_starting_and_all_of_it_is_said(start_worker: StartWorker) -> None:
    """F2."""
    worker = start_worker("--skip-checks", DJANGO_SETTINGS_MODULE="tests.unruly.broken_settings")

    output, _ = worker.communicate(timeout=30)

    assert worker.returncode == 1
    assert "'nobody'" in output
    assert "'nowhere'" in output
    assert "Traceback" not in output


def test_items_lists_and_inline_steps_find_their_way_to_processes_of_their_own() -> None:
    """F6, F14, F14a, T8: an item that dies is tried again, or stands as an error in the list."""
    run = unruly.squares.run([1, 13, -2, 3])
    with working(concurrency=3):
        assert run.wait(timeout=30) == "1+169+HandlerDied+9 = ? (far away)"

    assert RunLog.objects.filter(run_kind="item", message="item 1").count() == 2


def test_an_item_in_a_process_of_its_own_may_complete_the_flow_early() -> None:
    """F16."""
    run = unruly.squares.run([100])
    work_off()

    assert run.wait(timeout=5) == "a hundred is enough"


def test_items_of_a_worker_that_is_killed_are_run_by_another_and_the_rest_is_not_run_again(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    """W3, F14: between one item and the next."""
    victim = start_worker("--flows", "sieve", CATBIRD=QUICK_RECOVERY)
    run = unruly.sieve.run([str(tmp_path / str(number)) for number in range(200)])
    until(lambda: Item.objects.filter(status="completed").count() > 20, seconds=30)
    victim.kill()
    victim.wait()
    completed = set(Item.objects.filter(status="completed").values_list("id", flat=True))

    start_worker("--flows", "sieve", CATBIRD=QUICK_RECOVERY)

    assert run.wait(timeout=30) == 200
    assert 0 < len(completed) < 200
    assert set(Item.objects.filter(id__in=completed).values_list("delivery_count", flat=True)) == {1}
