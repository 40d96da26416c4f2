"""The handlers that faults happen to. The campaign queues their runs by name, and never imports this module."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction

from catbird_django import TaskContext, task
from tests.chaos import ledger


@dataclass(frozen=True)
class Pause:
    """How long to take."""

    seconds: float = 0.0


@dataclass(frozen=True)
class Trick:
    """What to do wrong."""

    how: str


def done_by(ctx: TaskContext) -> dict[str, int]:
    return {"attempt": ctx.attempt, "pid": os.getpid()}


@task(max_lost=20)
def note(pause: Pause, ctx: TaskContext) -> dict[str, int]:
    """Write into the ledger, take a while, write again."""
    ledger.write(ctx.run_id, ctx.attempt, "begin")
    time.sleep(pause.seconds)
    ledger.write(ctx.run_id, ctx.attempt, "end")
    return done_by(ctx)


@task(max_lost=20)
async def anote(pause: Pause, ctx: TaskContext) -> dict[str, int]:
    """The same on the event loop."""
    ledger.write(ctx.run_id, ctx.attempt, "begin")
    await asyncio.sleep(pause.seconds)
    ledger.write(ctx.run_id, ctx.attempt, "end")
    return done_by(ctx)


@task(max_lost=20)
async def block_the_loop(pause: Pause, ctx: TaskContext) -> dict[str, int]:
    """Take a while without giving the loop a chance."""
    ledger.write(ctx.run_id, ctx.attempt, "begin")
    time.sleep(pause.seconds)  # noqa: ASYNC251 - that is the fault
    ledger.write(ctx.run_id, ctx.attempt, "end")
    return done_by(ctx)


@task(max_retries=2, backoff=(0.05, 0.2))
def stumble(ctx: TaskContext) -> dict[str, int]:
    """Fail once, then succeed."""
    ledger.write(ctx.run_id, ctx.attempt, "begin")
    if ctx.attempt == 1:
        raise RuntimeError("the first time always fails")
    ledger.write(ctx.run_id, ctx.attempt, "end")
    return done_by(ctx)


@task
def echo(number: int) -> int:
    return number


@task
async def aecho(number: int) -> int:
    return number


@task
def ask(setting: str) -> str:
    """What a setting is on the connection that Django gives to handlers."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(%s)", [setting])
        return str(cursor.fetchone()[0])


@task
def look_at_the_tables() -> int:
    """Use Django's connection as handlers do: a query, and a transaction."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM cb_tasks")
        return int(cursor.fetchone()[0])


@task
async def alook_at_the_tables() -> int:
    """The same from the event loop."""
    return await sync_to_async(look_at_the_tables)()


@task
def tell_the_time() -> float:
    """This process's clock."""
    return time.time()


# Results and errors that cannot be stored as they are


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Verbose(Exception):
    def __str__(self) -> str:
        return "x" * 50_000_000


def _recurse() -> None:
    _recurse()


def _raise(error: BaseException) -> Any:
    raise error


@task
def misbehave(trick: Trick) -> Any:
    """Return or raise something that is not easily stored."""
    tricks: dict[str, Any] = {
        "nul": lambda: "a\x00b",
        "surrogate": lambda: "\ud800",
        "too large": lambda: "x" * 2_000_000,
        "nan": lambda: float("nan"),
        "infinite number": lambda: 10**200_000,
        "object": object,
        "deep": lambda: _deep(100_000),
        "sys.exit": lambda: sys.exit(3),
        "keyboard interrupt": lambda: _raise(KeyboardInterrupt()),
        "recursion": _recurse,
        "unspeakable": lambda: _raise(Unspeakable()),
        "verbose": lambda: _raise(Verbose()),
        "nul in the message": lambda: _raise(ValueError("a\x00b\ud800")),
        "generator exit": lambda: _raise(GeneratorExit()),
    }
    return tricks[trick.how]()


@task
async def amisbehave(trick: Trick) -> Any:
    """The same on the event loop."""
    return misbehave(trick)


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@task(max_lost=1)
def take_the_worker_down() -> None:
    os._exit(9)


# Handlers that leave something behind


@task
def spoil_the_connection(trick: Trick) -> None:
    """Leave Django's connection in a state that the next handler should not meet."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        match trick.how:
            case "aborted":
                transaction.set_autocommit(False)
                cursor.execute("SELECT 1 / 0")
            case "closed":
                connection.connection.close()
            case "autocommit off":
                transaction.set_autocommit(False)
                cursor.execute("SELECT 1")
            case "inside atomic":
                transaction.atomic().__enter__()
                cursor.execute("SELECT 1")
            case "raw transaction":
                cursor.execute("BEGIN")
            case "search path":
                cursor.execute("SET search_path = nowhere")
            case "role":
                cursor.execute("SET ROLE nobody_in_particular")
            case "statement timeout":
                cursor.execute("SELECT set_config('statement_timeout', '1', false)")
            case "terminated":
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            case other:
                raise ValueError(other)


@task
def litter(trick: Trick) -> None:
    """Leave a process, threads or another directory behind."""
    match trick.how:
        case "fork":
            if os.fork() == 0:
                os._exit(0)
        case "threads":
            for _ in range(20):
                threading.Thread(target=time.sleep, args=[600]).start()
        case "directory":
            os.chdir("/")
        case "daemon":
            if os.fork() == 0:
                os.closerange(3, 256)
                time.sleep(2)
                os._exit(0)


# Handlers that are too much for a thread


@task(isolation="process")
def crash(trick: Trick) -> None:
    """End the process of its own that it runs in."""
    match trick.how:
        case "os._exit":
            os._exit(9)
        case "segmentation fault":
            ctypes.string_at(0)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "sys.exit":
            sys.exit(3)
        case "too much memory":
            resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
            bytearray(2**32)


@task(timeout=0.5)
def never_return(trick: Trick) -> None:
    """Outlive the timeout, in ways that can and cannot be interrupted."""
    while trick.how == "busy":
        pass
    threading.Event().wait()


@task(timeout=0.5)
async def anever_return(trick: Trick) -> None:
    """The same on the event loop."""
    await asyncio.Event().wait()


@task(timeout=0.5, isolation="process")
def never_return_from_a_process(trick: Trick) -> None:
    """The same where it can be killed."""
    threading.Event().wait()
