"""Starts Python processes that know what this one knows: where modules are, and which settings are meant.

Never by fork: a copy of a process with threads inherits their locks without the threads that would release them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from catbird_django.errors import CatbirdError

MODULE_PATH = "CATBIRD_MODULE_PATH"
PR_SET_PDEATHSIG = 1


def start_process(entry: str, *, end: socket.socket, own_session: bool) -> subprocess.Popen[bytes]:
    """Start a process that calls `entry`, as in "module:function", with one end of a line to this process.

    It belongs to the thread that starts it: where the kernel can see to it, it dies with that thread.
    """
    if not os.environ.get("DJANGO_SETTINGS_MODULE"):
        raise CatbirdError("another process cannot be started: it would need settings in a module, not configure()")
    module, function = entry.split(":")
    boot = (
        f"import os, sys; sys.path[:] = os.environ.pop('{MODULE_PATH}').split(os.pathsep);"
        f" from {module} import {function}; {function}(*map(int, sys.argv[1:3]))"
    )
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-c", boot, str(end.fileno()), str(os.getpid())],
        env={**os.environ, MODULE_PATH: os.pathsep.join(str(Path(place).absolute()) for place in sys.path)},
        stdin=subprocess.DEVNULL,
        pass_fds=[end.fileno()],
        start_new_session=own_session,
    )


def die_with_parent(parent: int, how: signal.Signals) -> None:
    """Let the kernel send this process a signal when its parent ends, also by kill -9; where it cannot, do nothing.

    Asked for by the child: between fork and exec, where it is usually done, little is safe in a process with threads.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(how))
    if os.getppid() != parent:  # it was faster
        os.kill(os.getpid(), how)
