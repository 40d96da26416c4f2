"""Processes that queue runs, for scenarios: `python -m tests.chaos.client race KIND COUNT`, or `commit-and-die`."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from typing import Any

import django

RACERS = 8


def main(arguments: list[str]) -> None:
    django.setup()
    match arguments:
        case ["race", kind, count]:
            print(json.dumps(race(kind, int(count))))
        case ["commit-and-die"]:
            commit_and_die()


def race(kind: str, count: int) -> list[list[int]]:
    """Let eight processes run the same keys at the same time; return the ids that each got."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(RACERS)
    answers: Any = context.Queue()
    racers = [context.Process(target=_race, args=(kind, count, barrier, answers)) for _ in range(RACERS)]
    for racer in racers:
        racer.start()
    return [answers.get(timeout=60) for _ in racers]


def _race(kind: str, count: int, barrier: Any, answers: Any) -> None:
    from catbird_django import run_task

    ids = []
    for number in range(count):
        if number % 10 == 0:
            barrier.wait(30)  # or they drift apart
        ids.append(run_task("echo", number, **{kind: f"key {number}"}).id)  # type: ignore[arg-type]
    answers.put(ids)


def commit_and_die() -> None:
    """End without any goodbye the moment that the run is committed."""
    from django.db import connection, transaction

    from catbird_django import run_task

    with transaction.atomic():
        run_id = run_task("note", {}).id
    assert not connection.in_atomic_block
    os.write(1, f"{run_id}\n".encode())
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
