"""Handlers that do what no handler should, in processes of their own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db import connection

from catbird_django import Cancel, Retry, Snooze, TaskContext, task


class Unspeakable(Exception):
    """Cannot be put into words."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def _raise(error: BaseException) -> None:
    raise error


def _crash_and_leave_a_child() -> None:
    Path(os.environ["UNRULY_PID"]).write_text(str(subprocess.Popen(["sleep", "60"]).pid))
    os.abort()


WAYS: dict[str, Callable[[], Any]] = {
    "segfault": lambda: ctypes.string_at(0),
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "sys.exit": lambda: sys.exit("that was all"),
    "unspeakable": lambda: _raise(Unspeakable()),
    "endless": lambda: _raise(ValueError("x" * 50_000_000)),
    "too large": lambda: "x" * 2_000_000,
    "no json": object,
    "fork": lambda: "parent" if os.fork() else "copy",
    "crash and leave a child": _crash_and_leave_a_child,
    "nothing": lambda: None,
}


@task(isolation="process")
def misbehave(input: str) -> Any:
    """End in the way that the input names."""
    return WAYS[input]()


@task(isolation="process", max_retries=1, backoff=(0, 0))
def die_once(ctx: TaskContext) -> int:
    if ctx.attempt == 1:
        os.abort()
    return ctx.attempt


@task(isolation="process")
def interrupt(input: str) -> None:
    match input:
        case "retry":
            raise Retry("again", after=3600)
        case "snooze":
            raise Snooze(3600)
        case "cancel":
            raise Cancel("not wanted")


@task(isolation="process")
def where(input: str = "") -> int:
    """Say in which process it runs."""
    return os.getpid()


@task(isolation="process", timeout=0.3)
def loop_too_long() -> None:
    while True:
        time.sleep(0.01)


@task(isolation="process", timeout=0.3)
def sleep_too_long() -> None:
    """Hang where no exception gets in."""
    time.sleep(60)


@task(isolation="process", timeout=0.3)
def query_too_long() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(60)")


@task(isolation="process")
def talk(ctx: TaskContext) -> None:
    """Say something, then go on until canceled."""
    ctx.progress(1, 2, "half way")
    ctx.log("hello", level="warning")
    while True:
        ctx.heartbeat()
        time.sleep(0.01)


@task(isolation="process")
def be_deaf(ctx: TaskContext) -> None:
    """Run on without a look at the context."""
    ctx.log("begun")
    time.sleep(60)


@task(isolation="process")
async def talk_async(ctx: TaskContext) -> None:
    ctx.log("begun")
    await asyncio.sleep(60)


@task(isolation="process", timeout=0.3)
async def sleep_async() -> None:
    await asyncio.sleep(60)


@task(isolation="process")
async def add(input: list[int]) -> int:
    await asyncio.sleep(0)
    return sum(input)


@task
def take_time(input: float) -> str:
    """Run in the worker itself, beside the others."""
    time.sleep(input)
    return "done"
