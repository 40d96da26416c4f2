"""File locks that the kernel gives back on any death, so that a killed process leaves nothing stale behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def lock(path: Path, *, shared: bool = False, wait: bool = True) -> int:
    """Lock the file and give its descriptor; closing it unlocks.

    Raises BlockingIOError when `wait` is false and somebody else holds it.
    """
    operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, operation)
        except BaseException:
            os.close(descriptor)
            raise
        # The directory may have been removed and made anew while we waited: then this lock binds nobody.
        if is_current(descriptor, path):
            return descriptor
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold the file's exclusive lock for a block."""
    descriptor = lock(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Say whether somebody holds the file's exclusive lock."""
    try:
        # Shared, so that two processes asking at once do not take each other for the holder.
        os.close(lock(path, shared=True, wait=False))
    except BlockingIOError:
        return True
    return False


def is_current(descriptor: int, path: Path) -> bool:
    """Say whether the open file is still the one found under that path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
