"""The disk is full (RELIABILITY 22, W5)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.cluster import WORKER_ROLE
from tests.chaos.rounds import Round
from tests.chaos.scenario import Skipped, scenario

SIZE = "48m"
FILLER = "filler"


@contextmanager
def small_disk(round_: Round) -> Iterator[Path]:
    """A file system of a few megabytes; the round's database is on it."""
    place = round_.cluster.home / f"{round_.database}-disk"
    place.mkdir()
    answer = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", place], capture_output=True, text=True
    )
    if answer.returncode != 0:
        raise Skipped(f"a small disk cannot be mounted here ({answer.stderr.strip()})")
    try:
        if round_.cluster.account:
            os.chown(place, *round_.cluster.account)
        place.chmod(0o700)
        with moved_to(place, round_):
            yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@contextmanager
def moved_to(place: Path, round_: Round) -> Iterator[None]:
    tablespace = f"small_{round_.database}"
    round_.cluster.execute(f"CREATE TABLESPACE {tablespace} OWNER {WORKER_ROLE} LOCATION '{place}'")
    round_.cluster.execute(f"ALTER DATABASE {round_.database} SET TABLESPACE {tablespace}")
    try:
        yield
    finally:
        round_.end_workers()
        (place / FILLER).unlink(missing_ok=True)
        round_.cluster.execute(f"ALTER DATABASE {round_.database} SET TABLESPACE pg_default")
        round_.cluster.execute(f"DROP TABLESPACE {tablespace}")


def fill(place: Path) -> None:
    with (place / FILLER).open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(64 * 1024))
        except OSError:
            return


@scenario("the disk was full", "a client was told")
def work_goes_on_when_a_full_disk_has_room_again(round_: Round) -> None:
    with small_disk(round_) as place:
        worker = round_.start_worker()
        runs = round_.load(100, seconds=0.1)
        fill(place)
        round_.until(lambda: _is_refused(round_), seconds=10, what="a full disk")
        busy = _share_of_a_processor(worker.pid, seconds=2)
        round_.seen["the disk was full"] += round_.refusals("No space left on device")
        (place / FILLER).unlink()

        round_.until_ended(runs)
        round_.expect(worker.is_alive, "the worker has ended")
        round_.expect(busy < 0.5, f"it took {busy:.0%} of a processor while it could do nothing")
        round_.become_quiet()


def _is_refused(round_: Round) -> bool:
    """Queue runs until there is no room for one more."""
    try:
        round_.run_many("echo", 200, "1")
    except Exception as error:
        if "No space left" not in str(error):
            raise
        round_.saw("a client was told")
        return True
    return False


def _share_of_a_processor(pid: int, *, seconds: float) -> float:
    before, began = _cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (_cpu_seconds(pid) - before) / (time.monotonic() - began)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
