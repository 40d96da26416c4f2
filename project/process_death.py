"""Lets a child process die with its parent, also when the parent is killed with -9."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def die_with_parent(how: signal.Signals) -> Callable[[], None] | None:
    """Give a `preexec_fn` that has the kernel send the signal when our process ends; None where there is no such thing.

    Start the child from the main thread: the kernel watches the thread that forked, not the whole process.
    """
    if sys.platform != "linux":
        return None
    # Loaded here, not in the child: between fork and exec little may be done safely.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask_the_kernel() -> None:
        prctl(PR_SET_PDEATHSIG, int(how))
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return ask_the_kernel
