"""What an engine is, and an engine with one choice of settings; who they are is up to each benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OURS = "ours"
RAW = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine and how to ask it whether it is done.

    `module` is its adapter, `settings` the Django settings to run it with, if it wants any.

    `unfinished` is the SQL that counts what is not durably complete; None where PostgreSQL is not the one to ask.
    `slowness` divides the number of jobs, so that a slow engine does not take the whole evening. `finish` and
    `postpone` are the SQL that puts %s finished jobs, or jobs for tomorrow, beside the others. `hot_table` is the table
    that is claimed from; only engines that have one are soaked.
    """

    name: str
    module: str
    settings: str = ""
    packages: Sequence[str] = ()
    python: tuple[int, int] = (3, 11)
    """The oldest Python it runs on."""
    unfinished: str | None = None
    slowness: int = 1
    needs_redis: bool = False
    takes_documents: bool = False
    hot_table: str | None = None
    finish: str | None = None
    postpone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """An engine with one choice of settings."""

    name: str
    engine: Engine
    options: Mapping[str, Any] = field(default_factory=dict)
    worker: Sequence[str] = ()
    """The worker's command line after `python`; the adapter's own when empty."""
    is_main: bool = True
    """Whether enqueueing, pick-up and idling are measured too; settings that only concern drains are not."""
    only: Sequence[str] = ()
    """The kinds that these settings concern, and nothing else is measured; all when empty."""

    def takes_part_in(self, kind: str) -> bool:
        return kind in self.only if self.only else self.is_main or kind == "drain"


def names_of(contenders: Sequence[Contender]) -> list[str]:
    """The names of their engines."""
    return list(dict.fromkeys(contender.engine.name for contender in contenders))


def chosen(contenders: Sequence[Contender], names: Sequence[str] | None) -> list[Contender]:
    """Those of the engines named, in the usual order; all without names. ValueError for an unknown one."""
    known = names_of(contenders)
    if unknown := [name for name in names or () if name not in known]:
        raise ValueError(f"no engine {unknown[0]!r}: there are {', '.join(known)}")
    return [contender for contender in contenders if names is None or contender.engine.name in names]
