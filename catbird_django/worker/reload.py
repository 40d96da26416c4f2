"""Starts the process anew when a file of the project has changed, as `runserver` does: for development (W1)."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from django.utils.autoreload import file_changed, get_reloader


class FileWatch:
    """Looks after the files of all imported modules, on a thread of its own, with Django's own means."""

    def __init__(self) -> None:
        self.changed = threading.Event()
        self._when_changed: Callable[[], object] = lambda: None

    def start(self, *, broken_modules: Iterable[str] = ()) -> None:
        """Begin; a module that could not be imported is looked after together with its package."""
        file_changed.connect(self._note, dispatch_uid="catbird.worker.reload", weak=False)
        reloader = get_reloader()
        for module in broken_modules:
            if (found := find_spec(module)) is not None and found.origin is not None:
                reloader.watch_dir(Path(found.origin).parent, "**/*.py")
        watch = threading.Thread(target=reloader.run, args=[threading.main_thread()], name="catbird-files", daemon=True)
        watch.start()

    def tell(self, when_changed: Callable[[], object]) -> None:
        """Call this once a file has changed; at once, if one has."""
        self._when_changed = when_changed
        if self.changed.is_set():
            when_changed()

    def _note(self, *, file_path: Path, **_: Any) -> bool:
        """Take the change from Django, which would end the process where it stands."""
        if not self.changed.is_set():
            sys.stdout.write(f"{file_path} has changed.\n")
            self.changed.set()
            self._when_changed()
        return True


def start_anew() -> NoReturn:
    """Put a fresh process in the place of this one, with the same number and the same arguments."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own command line
