"""T14: what a handler may say, and what it may not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from catbird_django.client.context import StepContext, TaskContext

Context = TaskContext | StepContext


class Listener:
    """A reporter that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def is_canceled(self) -> bool:
        return False

    def progress(self, done: float, total: float | None, message: str) -> None:
        self.heard.append((done, total, message))

    def log(self, level: str, message: str) -> None:
        self.heard.append((level, message))

    def heartbeat(self) -> None:
        self.heard.append(("heartbeat",))


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture(params=["task", "step"])
def ctx(listener: Listener, request: pytest.FixtureRequest) -> Context:
    about: dict[str, Any] = {"run_id": 1, "queue": "default", "attempt": 1, "headers": {}, "reporter": listener}
    if request.param == "task":
        return TaskContext(task="pack", **about)
    return StepContext(flow="orders", step="pack", **about)


def test_words_reach_the_reporter(ctx: Context, listener: Listener) -> None:
    ctx.progress(1, 4, "first")
    ctx.progress(2.5)
    ctx.log("hello")
    ctx.log("oh", level="error")
    ctx.heartbeat()

    assert listener.heard == [(1, 4, "first"), (2.5, None, ""), ("info", "hello"), ("error", "oh"), ("heartbeat",)]


@pytest.mark.parametrize("amount", [-1, math.nan, math.inf, "3", None, True, 10**400, [1]])
@pytest.mark.parametrize("argument", ["done", "total"])
def test_what_is_no_amount_is_refused_by_name(ctx: Context, listener: Listener, amount: Any, argument: str) -> None:
    if amount is None and argument == "total":
        pytest.skip("no total is a total")
    with pytest.raises(ValueError, match=f"^{argument} must"):
        ctx.progress(**{"done": 1, "total": 2, argument: amount})

    assert listener.heard == []


@pytest.mark.parametrize("level", ["INFO", "fatal", "", None])
def test_an_unknown_level_is_refused_by_name(ctx: Context, level: Any) -> None:
    with pytest.raises(ValueError, match=r"^level must be one of debug, info, warning, error"):
        ctx.log("x", level=level)


def test_a_message_that_is_no_text_is_refused_by_name(ctx: Context) -> None:
    with pytest.raises(ValueError, match=r"^message must be text"):
        ctx.log({"a": 1})  # type: ignore[arg-type]


def test_messages_are_cut_and_cleaned(ctx: Context, listener: Listener) -> None:
    ctx.progress(1, 2, "x" * 501)
    ctx.log("y" * 4001)
    ctx.log("a\x00b\ud800c")

    assert listener.heard == [(1, 2, "x" * 500), ("info", "y" * 4000), ("info", "a\ufffdb\ufffdc")]
