"""The processes that the demo starts, and stops again whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.conf import settings

from project.process_death import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

LINES_TO_SHOW = 15


@dataclass(frozen=True, slots=True)
class Child:
    """A process of the demo; what it prints goes to its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def is_running(self) -> bool:
        return self.process.poll() is None

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LINES_TO_SHOW:])


def start_child(name: str, command: Sequence[str], *, log: Path, keep: Iterable[int] = ()) -> Child:
    """Start a process that ends with ours; `keep` are descriptors it inherits."""
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            command,
            cwd=settings.BASE_DIR,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=tuple(keep),
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            # A session of its own, so that Ctrl-C reaches only us and we stop it in good order.
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGTERM),
        )
    return Child(name, process, log)


def stop_children(children: Sequence[Child], *, patience: float) -> None:
    """Ask all of them to stop, and kill those that do not within the time."""
    for child in children:
        child.process.terminate()
    deadline = time.monotonic() + patience
    for child in children:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()
