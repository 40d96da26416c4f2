"""How an adapter learns where it works and with which settings, and how it answers: BENCH_DSN, BENCH_OPTIONS (JSON)."""

from __future__ import annotations

import json
import os
from typing import Any

ANSWER = "ANSWER "


def dsn() -> str:
    """The database to use, as a URL."""
    return os.environ["BENCH_DSN"]


def option(name: str, default: Any) -> Any:
    """A setting of this contender."""
    return json.loads(os.environ.get("BENCH_OPTIONS", "{}")).get(name, default)


def say(answer: dict[str, Any]) -> None:
    """Give the measuring process its answer."""
    print(f"{ANSWER}{json.dumps(answer)}", flush=True)
