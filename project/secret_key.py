"""A secret key that nobody has to think of: made once, kept beside the embedded database."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from django.core.management.utils import get_random_secret_key


def kept_secret_key(file: Path) -> str:
    """Read the key from the file, making it first if need be.

    Where the file can be neither read nor made, the key holds for this process only: good enough for commands such as
    `manage.py check` in a checkout that belongs to somebody else.
    """
    try:
        if not file.exists():
            keep(get_random_secret_key(), file)
        return file.read_text().strip()
    except OSError:
        return get_random_secret_key()


def keep(key: str, file: Path) -> None:
    """Write the key unless another process was faster; a reader never sees half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # mkstemp makes a file that only its owner can read.
    descriptor, unfinished = tempfile.mkstemp(dir=file.parent, prefix=f"{file.name}.")
    with os.fdopen(descriptor, "w") as writer:
        writer.write(f"{key}\n")
    try:
        os.link(unfinished, file)
    except FileExistsError:
        pass
    finally:
        Path(unfinished).unlink()
