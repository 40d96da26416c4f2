"""What can be seen of processes and logs from outside."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds(pid: int) -> float | None:
    """The CPU time that a process has used so far; None where there is no /proc to say so."""
    try:
        # The name, in brackets, may have spaces in it: user and system time are the 12th and 13th after it.
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory(pid: int) -> float | None:
    """The most memory that a process has had at any time, in MB; None where there is no /proc to say so."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return kilobytes[0] / 1024 if kilobytes else None


def quantile(ordered: list[float], share: float) -> float:
    """The value that this share of an ordered list does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def read_from(path: Path, beginning: int) -> bytes:
    with path.open("rb") as file:
        file.seek(beginning)
        return file.read()
