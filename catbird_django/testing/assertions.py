"""Assertions about runs whose failures say why: what the run waits for, or what went wrong."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from django.apps import apps

from catbird_django.client.flow_handles import FlowHandle
from catbird_django.client.handles import TaskHandle
from catbird_django.engine.flows import read_step_runs
from catbird_django.errors import FlowFailed, RunError, TaskFailed
from catbird_django.statuses import TERMINAL_STATUSES

O = TypeVar("O")  # noqa: E741 - as in Task[I, O]
AnyHandle = TaskHandle[O] | FlowHandle[O]


def assert_completed(run: AnyHandle[O]) -> O:
    """Assert that the run has completed; return its output."""
    __tracebackhide__ = True
    assert_status(run, "completed")
    return run.wait()


def assert_failed(run: AnyHandle[Any], saying: str = "") -> TaskFailed | FlowFailed:
    """Assert that the run has failed, with these words in its error; return what `wait()` raises."""
    __tracebackhide__ = True
    assert_status(run, "failed")
    error = _error_of(run)
    if not isinstance(error, TaskFailed | FlowFailed) or saying not in str(error):
        raise AssertionError(f"{run!r} has failed without saying {saying!r}: {error}")
    return error


def assert_status(run: AnyHandle[Any], status: str) -> None:
    """Assert that the run has this status: "completed", "canceled", "started", …"""
    __tracebackhide__ = True
    actual = str(run.status())
    if actual != status:
        raise AssertionError("\n  ".join([f"{run!r} is {actual}, not {status}", *_why(run, actual)]))


def _why(run: AnyHandle[Any], status: str) -> list[str]:
    """What a person would want to know about a run that is not as expected, in lines."""
    if status in TERMINAL_STATUSES:
        error = _error_of(run)
        stored: dict[str, Any] = getattr(error, "error", {})
        return [str(error), *stored.get("traceback", "").splitlines()] if error else []
    return _why_flow_waits(run) if isinstance(run, FlowHandle) else _why_task_waits(run)


def _error_of(run: AnyHandle[Any]) -> RunError | None:
    try:
        run.wait()
    except RunError as error:
        return error
    return None


def _why_flow_waits(run: FlowHandle[Any]) -> list[str]:
    errors = [(step.step, json.loads(step.error)) for step in read_step_runs(run.id, using=run.using) if step.error]
    said = [f"{step} has raised {error['type']}: {error['message']}" for step, error in errors]
    return [*map(str, run.explain()), *said]


def _why_task_waits(run: AnyHandle[Any]) -> list[str]:
    row = apps.get_model("catbird", "TaskRun").objects.using(run.using).get(pk=run.id)
    lines = []
    if row.visible_at is not None:
        lines.append(f"it waits until {row.visible_at}")
    if row.error is not None:
        lines.append(f"its last attempt has raised {row.error['type']}: {row.error['message']}")
    return lines or ["nothing keeps it from being run: was work_until_idle() called after it, with its handler here?"]
