"""Real worker processes, and what they said."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from project.process_death import die_with_parent
from tests.chaos.cluster import CHECKOUT

LEASE, SWEEP, POLL, GRACE = 3.0, 0.5, 0.5, 5.0
RECOVERY_BOUND = LEASE + SWEEP + POLL + 1.0
SETTINGS: dict[str, Any] = {
    "LEASE": LEASE,
    "SWEEP_INTERVAL": SWEEP,
    "POLL_INTERVAL": POLL,
    "IDLE_POLL_INTERVAL": POLL,
    "SHUTDOWN_GRACE": GRACE,
    "CONCURRENCY": 4,
    "EVENTS": "all",
}
STARTED = re.compile(r"catbird worker (\d+) runs")
FIRED = re.compile(r"^failpoint (\S+)$", re.MULTILINE)


class WorkerProcess:
    """`manage.py catbird_worker`, with a log of its own."""

    def __init__(
        self,
        log: Path,
        environment: Mapping[str, str],
        *arguments: str,
        failpoint: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._log = log
        self.started_at = float("-inf")
        """When it was seen to be at work."""
        surroundings = {**environment, "CATBIRD": json.dumps({**SETTINGS, **(settings or {})}), "PYTHONUNBUFFERED": "1"}
        if failpoint:
            surroundings |= {"CATBIRD_TESTING": "1", "CATBIRD_FAILPOINT": failpoint}
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, str(CHECKOUT / "manage.py"), "catbird_worker", *arguments],
                env=surroundings,
                stdout=file,
                stderr=file,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def has_started(self) -> bool:
        return STARTED.search(self.said()) is not None

    @property
    def worker_id(self) -> int:
        """The id of its row."""
        found = STARTED.search(self.said())
        assert found, "it has not started yet"
        return int(found[1])

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def fired(self) -> list[str]:
        """The failpoints that have acted, as they were asked for."""
        return FIRED.findall(self.said())

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> float:
        """kill -9; return when."""
        self._process.kill()
        self._process.wait()
        return time.time()

    def wait(self, seconds: float) -> int:
        """Wait for its end; return its exit code, negative for a signal. Raise subprocess.TimeoutExpired."""
        return self._process.wait(seconds)

    def end(self) -> None:
        """Make sure that it is gone, whatever state it is in."""
        if self.is_alive:
            self._process.kill()
            self._process.wait()
