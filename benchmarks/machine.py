"""What it all ran on: enough to judge the numbers, nothing that names the machine."""

from __future__ import annotations

import os
import platform
from typing import Any


def describe() -> dict[str, Any]:
    """Cores, memory, system and Python."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def load() -> float:
    """Processes that wanted to run during the last minute, on average: what else was going on."""
    return round(os.getloadavg()[0], 2)
