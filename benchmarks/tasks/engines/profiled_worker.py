"""Our worker, until it is idle, with the CPU time of every function on each of its threads.

Counting makes each call dearer, so small functions look larger than they are: read the order, not the seconds. Samples
would not do: a sampling thread gets its turn where the others give way, and sees little else.
"""

from __future__ import annotations

import cProfile
import pstats
import re
import sys
import threading
import time
from collections import defaultdict

import django

from benchmarks.engines.exchange import say
from benchmarks.tasks.engines import on_catbird
from benchmarks.tasks.engines.adapter import Adapter

ROOT = on_catbird.__file__.split("benchmarks")[0]
PROFILES: list[tuple[str, cProfile.Profile]] = []

run_unprofiled = threading.Thread.run


def run_profiled(thread: threading.Thread) -> None:
    with profiled(re.sub(r"-\d+$", "", thread.name)):
        run_unprofiled(thread)


def profiled(thread: str) -> cProfile.Profile:
    """A profile by CPU time, so that waiting for the server or for another thread counts for nothing."""
    profile = cProfile.Profile(time.thread_time)
    PROFILES.append((thread, profile))
    return profile


def worker() -> None:
    from django.core.management import call_command

    if sys.version_info >= (3, 12):
        sys.exit("from Python 3.12 on, a process can have only one profile, and a worker has many threads: use 3.11")
    threading.Thread.run = run_profiled  # type: ignore[assignment,method-assign]
    with profiled("main"):
        call_command("catbird_worker", until_idle=True, verbosity=0)
    say(added_up())


def added_up() -> dict[str, dict[str, float]]:
    """CPU seconds by thread, by function, and by function with what it calls."""
    threads: defaultdict[str, float] = defaultdict(float)
    own: defaultdict[str, float] = defaultdict(float)
    total: defaultdict[str, float] = defaultdict(float)
    for thread, profile in PROFILES:
        counted = pstats.Stats(profile).stats  # type: ignore[attr-defined] # not in its stubs
        for (path, line, function), (_, _, here, with_callees, _) in counted.items():
            name = f"{path.removeprefix(ROOT).rpartition('site-packages/')[2]}:{line} {function}"
            threads[thread] += here
            own[name] += here
            total[name] += with_callees
    return {"threads": threads, "own": own, "total": total}


if __name__ == "__main__":
    django.setup()
    Adapter(on_catbird.setup, worker, on_catbird.enqueuer).main()
