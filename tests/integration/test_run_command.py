"""X3: `manage.py catbird_run`."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from catbird_django import task
from catbird_django.models import RunTag, TaskRun
from tests.support import register, working

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Page:
    title: str


@pytest.fixture
def summarize() -> Any:
    @task
    def summarize(input: Page) -> int:
        return 100 // len(input.title)

    return summarize


def catbird_run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("catbird_run", *arguments, stdout=out)
    return out.getvalue().strip()


def test_it_queues_a_run_and_prints_its_number(summarize: Any) -> None:
    said = catbird_run("summarize", "--input", '{"title": "Ada"}')

    run = TaskRun.objects.get()
    assert said == f"run {run.id}: queued"
    assert run.input == {"title": "Ada"}


def test_every_option_reaches_the_run(summarize: Any) -> None:
    said = catbird_run(
        *("summarize", "--input", '{"title": "Ada"}', "--queue", "slow", "--priority", "7", "--delay", "5m"),
        *("--expires-at", "2130-01-31T08:00", "--debounce-key", "k", "--tag", "a", "--tag", "b", "--format", "json"),
    )

    run = TaskRun.objects.get()
    assert json.loads(said) == {"run_id": run.id, "status": "queued"}
    assert (run.queue, run.priority, run.debounce_key, run.expires_at.year) == ("slow", 7, "k", 2130)
    assert timedelta(minutes=4) < run.visible_at - run.queued_at < timedelta(minutes=6)
    assert set(RunTag.objects.values_list("tag", flat=True)) == {"a", "b"}


def test_the_input_may_come_from_a_file_or_from_stdin(
    summarize: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.json"
    page.write_text('{"title": "Ada"}')
    monkeypatch.setattr("sys.stdin", io.StringIO('{"title": "Kim"}'))

    catbird_run("summarize", "--input-file", str(page))
    catbird_run("summarize", "--input-file", "-")

    assert [run.input["title"] for run in TaskRun.objects.order_by("id")] == ["Ada", "Kim"]


def test_it_waits_for_the_output(summarize: Any) -> None:
    with working("summarize"):
        assert catbird_run("summarize", "--input", '{"title": "Ada"}', "--wait", "20") == "33"
        said = catbird_run("summarize", "--input", '{"title": "Ada"}', "--wait", "20", "--format", "json")

    assert json.loads(said) == {"run_id": TaskRun.objects.latest("id").id, "status": "completed", "output": 33}


def test_a_run_that_fails_is_exit_code_1(summarize: Any) -> None:
    with working("summarize"), pytest.raises(CommandError, match="by zero") as refused:
        catbird_run("summarize", "--input", '{"title": ""}', "--wait", "20")

    assert refused.value.returncode == 1


def test_a_run_that_does_not_end_in_time_is_exit_code_1_and_goes_on(summarize: Any) -> None:
    with pytest.raises(CommandError, match="still queued") as refused:
        catbird_run("summarize", "--input", '{"title": "Ada"}', "--wait", "0.1")

    assert refused.value.returncode == 1
    assert TaskRun.objects.get().status == "queued"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["sumarize"], "no task or flow named 'sumarize'; did you mean 'summarize'"),
        (["zzz"], r"no task or flow named 'zzz' \(there are: .*elsewhere, .*summarize\)"),
        (["summarize", "--input", "{title}"], "--input: not JSON"),
        (["summarize", "--input", '{"title": 7}'], "input.title"),
        (["summarize", "--input-file", "/nowhere/at/all"], "--input-file: .*No such file"),
        (["summarize", "--input", '{"title": "x"}', "--priority", "101"], "priority: must be"),
        (["summarize", "--input", '{"title": "x"}', "--tag", ""], "tags: "),
    ],
)
def test_what_cannot_be_queued_is_exit_code_2_and_says_why(
    summarize: Any, arguments: list[str], complaint: str
) -> None:
    register("elsewhere")

    with pytest.raises(CommandError, match=complaint) as refused:
        catbird_run(*arguments)

    assert refused.value.returncode == 2
    assert not TaskRun.objects.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--delay", "soon"],
        ["--run-at", "tomorrow"],
        ["--run-at", "2030-02-31T08:00"],
        ["--delay", "1", "--run-at", "2130-01-01T00:00"],
    ],
)
def test_arguments_that_cannot_be_are_refused(summarize: Any, arguments: list[str]) -> None:
    with pytest.raises(CommandError, match="Error: argument"):
        catbird_run("summarize", *arguments)


def test_a_task_that_only_other_processes_declare_can_be_run() -> None:
    register("elsewhere")

    assert catbird_run("elsewhere", "--input", "5").endswith("queued")
