"""The process of a handler: takes claims from its worker, one at a time, and says how they ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
from asgiref.sync import ThreadSensitiveContext
from django.db import connections

from catbird_django.definitions.registry import registry
from catbird_django.engine.items import ItemOutput
from catbird_django.engine.reports import MAX_LINES
from catbird_django.engine.steps import Claim
from catbird_django.errors import UnknownName
from catbird_django.worker.channel import Channel, HungUp, Message
from catbird_django.worker.executor import Executor
from catbird_django.worker.fresh_process import die_with_parent
from catbird_django.worker.handlers import Handler, build_handlers
from catbird_django.worker.isolation.messages import claim_from_json, outcome_as_json
from catbird_django.worker.item_lists import ReadItems
from catbird_django.worker.outcome import Outcome, failure
from catbird_django.worker.recycling import Limits
from catbird_django.worker.step_handlers import StepHandler, build_step_handler
from catbird_django.worker.watchdog import Watchdog

FOR_EVER = timedelta(days=3660)


def main(file_descriptor: int, parent: int) -> None:
    """Serve the worker at the other end until it hangs up."""
    die_with_parent(parent, signal.SIGKILL)
    _leave_signals_to_the_worker()
    _offer_to_go_first()
    os.set_inheritable(file_descriptor, False)
    channel = Channel(socket.socket(fileno=file_descriptor))
    try:
        terms = channel.receive() or {}
        try:
            django.setup()
        except BaseException as error:
            channel.send({"broken": f"{type(error).__name__}: {error}"})
            raise
        channel.send({"ready": True})
        Child(channel, terms).serve()
    except HungUp:
        os._exit(0)


def _leave_signals_to_the_worker() -> None:
    """Whoever stops a worker may signal all its processes; only the worker decides when a handler has to go.

    Functions that do nothing, not SIG_IGN: what a handler starts would inherit that.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)


def _offer_to_go_first() -> None:
    """When memory runs out, the kernel should rather kill a handler than its worker."""
    with contextlib.suppress(OSError):  # it is no Linux, or may not
        Path("/proc/self/oom_score_adj").write_text("500")


class Child:
    """Runs handlers on the main thread, and listens to the worker on another."""

    def __init__(self, channel: Channel, terms: Message) -> None:
        self._channel = channel
        self._limits = Limits(runs=terms["max_runs"], memory=terms["max_memory"])
        self._handlers: dict[int, Handler] = {}
        # The worker kills this process where an interrupt does not help, so nothing is ever abandoned here.
        self._watchdog = Watchdog(grace=FOR_EVER, abandoned=lambda _: None)
        self._executor = Executor(
            self._handlers,
            max_payload=terms["max_payload"],
            is_canceled=lambda _: self._is_canceled,
            reporter_for=lambda _: ChannelReporter(channel, is_canceled=lambda: self._is_canceled),
            watchdog=self._watchdog,
        )
        self._claims: queue.SimpleQueue[Message | None] = queue.SimpleQueue()  # None: no more to come
        self._lists: dict[str, list[list[Any]]] = {}  # outputs of maps that came with the claim
        self._is_busy = False
        self._is_canceled = False
        self._cancel_handler: Callable[[], object] = lambda: None
        self._run_count = 0

    def serve(self) -> None:
        """Run what the worker sends, until it sends no more."""
        self._watchdog.start()
        threading.Thread(target=self._listen, name="catbird-listen", daemon=True).start()
        pid = os.getpid()
        while (message := self._claims.get()) is not None:
            outcome = self._outcome_of(message)
            if os.getpid() != pid:
                os._exit(0)  # a copy that the handler made by fork, and that has come back from it too
            self._run_count += 1
            is_worn_out = bool(self._limits.exceeded_by(self._run_count))
            self._is_busy = False
            self._channel.send({"outcome": outcome_as_json(outcome), "is_worn_out": is_worn_out})
        connections.close_all()
        os._exit(0)  # threads that handlers have left behind would keep the process alive

    def _listen(self) -> None:
        try:
            while (message := self._channel.receive()) is not None:
                if "claim" in message:
                    self._is_canceled = False
                    self._is_busy = True
                    self._claims.put(message)
                elif "cancel" in message:
                    self._is_canceled = True
                    with contextlib.suppress(RuntimeError):  # its loop has just been closed
                        self._cancel_handler()
                else:
                    self._claims.put(None)
        except HungUp:
            if self._is_busy:
                os.killpg(os.getpgrp(), signal.SIGKILL)  # the worker has died; so must what the handler has started
            self._claims.put(None)

    def _outcome_of(self, message: Message) -> Outcome:
        claim = claim_from_json(message["claim"])
        self._lists = message.get("lists", {})
        try:
            return self._run(self._handler(message, claim.handler_id), claim)
        except BaseException as error:  # noqa: BLE001 - even our own mistake must not leave a claim without an outcome
            return failure(claim, error)

    def _run(self, handler: Handler, claim: Claim) -> Outcome:
        if handler.is_async:
            return asyncio.run(self._run_async(claim))
        return self._executor.run(claim)

    async def _run_async(self, claim: Claim) -> Outcome:
        loop = asyncio.get_running_loop()
        async with ThreadSensitiveContext() as threads:
            task = loop.create_task(self._executor.run_async(claim, threads))
            self._cancel_handler = lambda: loop.call_soon_threadsafe(task.cancel)
            try:
                return await task
            finally:
                self._cancel_handler = lambda: None

    def _handler(self, message: Message, handler_id: int) -> Handler:
        if handler_id not in self._handlers:
            if "step" in message:
                handler = _handler_of_step(*message["step"].split("."), read_items=self._read_items)
                self._handlers[handler_id] = handler.knowing(message["inline"])
            else:
                self._handlers[handler_id] = _handler_of_task(message["task"], handler_id)
        return self._handlers[handler_id]

    def _read_items(self, step_run_id: int, *, after: int, limit: int) -> list[ItemOutput]:
        outputs = self._lists[str(step_run_id)]
        return [ItemOutput(*output) for output in outputs[after + 1 : after + 1 + limit]]


def _handler_of_task(name: str, task_id: int) -> Handler:
    definition = registry.tasks.get(name)
    if definition is None or definition.handler is None:
        raise UnknownName(
            f"task {name!r} is unknown in the process of its handler:"
            " it must be declared in the tasks.py of an installed app"
        )
    return build_handlers([definition], {name: task_id})[task_id]


def _handler_of_step(flow: str, step: str, *, read_items: ReadItems) -> StepHandler:
    definition = registry.flows[flow].definition if flow in registry.flows else None
    if definition is None or step not in definition.steps:
        raise UnknownName(
            f"step {step!r} of flow {flow!r} is unknown in the process of its handler:"
            " it must be declared in the flows.py of an installed app"
        )
    return build_step_handler(definition, definition.steps[step], read_items=read_items)


class ChannelReporter:
    """Sends the words of a handler to the worker."""

    def __init__(self, channel: Channel, *, is_canceled: Callable[[], bool]) -> None:
        self._channel = channel
        self._is_canceled = is_canceled
        self._line_count = 0

    def is_canceled(self) -> bool:
        return self._is_canceled()

    def progress(self, done: float, total: float | None, message: str) -> None:
        self._channel.send({"progress": [done, total, message]})

    def log(self, level: str, message: str) -> None:
        self._line_count += 1
        if self._line_count <= MAX_LINES:
            self._channel.send({"log": [level, message]})

    def heartbeat(self) -> None:
        """Nothing to send: the worker renews the lease."""
