"""When a worker has done enough, or has grown too large, and should make room for a fresh process (W8)."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 1024 * 1024
STATM = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one process may do; None for as much as it likes."""

    runs: int | None = None
    memory: int | None = None
    """Of the process itself, in megabytes."""

    def exceeded_by(self, runs: int) -> str:
        """Why a process that has finished so many runs should be replaced; empty if it need not be."""
        if self.runs is not None and runs >= self.runs:
            return f"it has finished {runs} runs"
        if self.memory is not None and (used := memory_in_use() // MEGABYTE) >= self.memory:
            return f"it uses {used} MB of memory"
        return ""


def memory_in_use() -> int:
    """How many bytes of memory this process occupies; where that cannot be known, the most it ever did."""
    try:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
