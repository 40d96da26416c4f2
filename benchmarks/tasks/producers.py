"""Many producers at once, with workers that listen: what do wake-ups cost those who enqueue?"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.bench import Bench, MeasureFailed, answer_in, complaints, errors, said
from benchmarks.tasks.engines.adapter import GO, READY
from benchmarks.tasks.measures import GLANCE, SETTLE_IN

PRODUCERS = 8
WORKERS = 4
READY_WITHIN = 60.0  # seconds
ELSEWHERE = ("--queues", "elsewhere")  # an option of our worker


def enqueue_from_many(bench: Bench, seconds: float, *, notify: bool = True, served: bool = True) -> float:
    """Single enqueues per second of all producers together, while workers run what they enqueue.

    Not `served`, the workers listen as well, but serve another queue and have nothing to do.
    """
    settings = {} if notify else without_notify(os.environ)
    arguments = () if served else ELSEWHERE
    with (
        bench.fresh_database() as database,
        bench.probes() as probes,
        bench.workers(probes, database, WORKERS, *arguments, settings=settings),
    ):
        time.sleep(SETTLE_IN)
        with bench.callers(probes, database, PRODUCERS, "produce", seconds, settings=settings) as producers:
            _start_together(probes)
            _wait_for_end(producers, seconds)
            answers = [_answer_of(probes, number) for number in range(PRODUCERS)]
    return rate_of(answers)


def rate_of(answers: Sequence[Mapping[str, float]]) -> float:
    """What all did, over the time that the slowest took."""
    return sum(answer["jobs"] for answer in answers) / max(answer["seconds"] for answer in answers)


def without_notify(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings to add for an installation of ours in which nobody is woken: workers poll."""
    given = json.loads(environment.get("BENCH_CATBIRD", "{}"))
    return {"BENCH_CATBIRD": json.dumps({**given, "NOTIFY": False})}


def _answer_of(probes: Path, number: int) -> dict[str, float]:
    words = said(probes, "caller", number).read_text(), errors(probes, "caller", number).read_text()
    return answer_in(*words, what="produce")


def _start_together(probes: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while len(list(probes.glob(f"{READY}.*"))) < PRODUCERS:
        if time.monotonic() > deadline:
            raise MeasureFailed(f"the producers did not start: {complaints(probes, 'caller')}")
        time.sleep(GLANCE)
    (probes / GO).touch()


def _wait_for_end(producers: list[subprocess.Popen[bytes]], seconds: float) -> None:
    deadline = time.monotonic() + seconds + READY_WITHIN
    for producer in producers:
        try:
            producer.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise MeasureFailed("a producer did not end") from error
