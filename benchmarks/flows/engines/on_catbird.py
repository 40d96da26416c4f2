"""Ours: started with `.run_many()`. The worker is the real command, started by the measuring process."""

from __future__ import annotations

from typing import Any

import django

from benchmarks.engines.exchange import option
from benchmarks.flows.engines.adapter import Adapter, batches


def setup() -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def worker() -> None:
    raise SystemExit("the worker is `manage.py catbird_worker`")


def start(shape: str, flows: int, items: int) -> None:
    flow = flow_of(shape)
    for size in batches(flows):
        flow.run_many([items] * size)


def flow_of(shape: str) -> Any:
    from benchmarks.flows.engines.catbird_site import flows

    return {
        ("linear", "sync"): flows.linear,
        ("linear", "async"): flows.async_linear,
        ("diamond", "sync"): flows.diamond,
        ("diamond", "async"): flows.async_diamond,
        ("fanout", "sync"): flows.fanout,
        ("fanout", "async"): flows.async_fanout,
        ("fanout", "reduce"): flows.reduced,
        ("map", "sync"): flows.streamed,
        ("map", "reduce"): flows.reduced,
    }[shape, option("handlers", "sync")]


if __name__ == "__main__":
    django.setup()
    Adapter(setup, worker, start).main()
