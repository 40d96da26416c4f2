"""Flows whose steps die, wait to be killed, or run in processes of their own."""

from __future__ import annotations

import os
import time
from pathlib import Path

from catbird_django import Cancel, Flow, Skip, StepContext

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


def _note(place: str, step: str) -> None:
    """Leave a trace that outlives the process."""
    with (Path(place) / "trace").open("a") as trace:
        trace.write(f"{step}\n")
