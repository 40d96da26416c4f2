"""Flows whose steps die, wait to be killed, or run in processes of their own."""

from __future__ import annotations

import os
import time
from pathlib import Path

from catbird_django import Cancel, Flow, ItemError, Skip, StepContext, complete_early

errand = Flow("errand")


@errand.step
def begin(input: str) -> str:
    return input


@errand.step(isolation="process", max_retries=1, backoff=(0, 0), may_skip=True)
def go(begin: str, ctx: StepContext) -> list[int]:
    """End in the way that the input names, far from the worker."""
    ctx.log(f"attempt {ctx.attempt}")
    match begin:
        case "die once" if ctx.attempt == 1:
            os.abort()
        case "skip":
            raise Skip("no need to")
        case "cancel":
            raise Cancel("not wanted")
    return [os.getpid(), ctx.attempt]


@errand.step(isolation="process")
async def come_back(go: list[int] | None) -> list[int] | None:
    return go


trek = Flow("trek")


@trek.step
def pack(input: str) -> str:
    _note(input, "pack")
    return input


@trek.step
def walk(pack: str, ctx: StepContext) -> int:
    """Walk until there is a file named `arrived`."""
    _note(pack, "walk")
    while not (Path(pack) / "arrived").exists():
        time.sleep(0.02)
    return ctx.attempt


@trek.step
def rest(walk: int, input: str) -> int:
    _note(input, "rest")
    return walk


squares = Flow("squares", input=list[int])


@squares.map(over="input", isolation="process", max_retries=1, backoff=(0, 0), on_item_failure="collect")
def square(item: int, ctx: StepContext) -> int:
    """Square an item; die of one that is 13, once, and of a negative one always."""
    ctx.log(f"item {ctx.index}")
    if item < 0 or (item == 13 and ctx.attempt == 1):
        os.abort()
    if item == 100:
        complete_early("a hundred is enough", "it came")
    return item * item


@squares.step(isolation="process")
def written(square: list[int | ItemError]) -> str:
    return "+".join(item.type if isinstance(item, ItemError) else str(item) for item in square)


@squares.step(inline=True)
def equation(written: str) -> str:
    return f"{written} = ? ({'worker' if os.getpid() == int(os.environ['WORKER_PID']) else 'far away'})"


sieve = Flow("sieve", input=list[str])


@sieve.map(over="input", max_lost=100)
def touch(item: str) -> int:
    Path(item).touch()
    time.sleep(0.01)
    return 1


@sieve.reduce(over="touch", initial=0)
def touched(acc: int, item: int) -> int:
    return acc + item


def _note(place: str, step: str) -> None:
    """Leave a trace that outlives the process."""
    with (Path(place) / "trace").open("a") as trace:
        trace.write(f"{step}\n")
