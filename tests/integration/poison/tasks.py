"""A task that kills the process it runs in, and one that does no harm."""

import os
import signal
import time

from catbird_django import task


@task
def poison() -> None:
    """Kill the worker, as running out of memory does."""
    os.kill(os.getpid(), signal.SIGKILL)


@task
def neighbour(input: int) -> int:
    """Do a little."""
    time.sleep(0.005)
    return input
