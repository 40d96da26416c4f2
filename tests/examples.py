"""The projects of examples/, imported into a test or run as they stand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from catbird_django.definitions.registry import registry

CHECKOUT = Path(__file__).resolve().parents[1]
EXAMPLES = CHECKOUT / "examples"


@contextmanager
def importing_from(project: str, *apps: str) -> Iterator[Callable[[str], Any]]:
    """Import modules of an example's apps; they, and what they declare, are forgotten afterwards."""
    sys.path.insert(0, str(EXAMPLES / project))
    try:
        with registry.isolated():
            yield import_module
    finally:
        sys.path.remove(str(EXAMPLES / project))
        for name in [name for name in sys.modules if name.split(".")[0] in apps]:
            del sys.modules[name]
