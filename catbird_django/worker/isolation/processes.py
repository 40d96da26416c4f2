"""The worker's side of isolated handlers: starts their processes, talks to them, kills those that will not stop."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from catbird_django.client.context import Reporter
from catbird_django.client.interrupts import CancelRequested
from catbird_django.engine.steps import Claim
from catbird_django.errors import HandlerDied, HandlerTimeout
from catbird_django.worker.channel import Channel, HungUp, Message
from catbird_django.worker.fresh_process import start_process
from catbird_django.worker.handlers import Handler
from catbird_django.worker.isolation.messages import claim_as_json, outcome_from_json
from catbird_django.worker.outcome import Outcome, Released
from catbird_django.worker.recycling import Limits

logger = logging.getLogger("catbird.worker")

ENTRY = "catbird_django.worker.isolation.child:main"
LOOK_EVERY = 0.2  # seconds between looks at what a process cannot tell: it has died, was canceled, takes too long
LONGEST_START = 60.0
LONGEST_SEND = 30.0
LONGEST_END = 1.0
IDLE_FOR = 60.0
"""After how many seconds without work a process is ended."""


class HandlerProcess:
    """One process, seen from the worker."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(LONGEST_SEND)
        with theirs:
            # A session of its own: Ctrl-C is for the worker, and all that a handler has started can be killed with it.
            self._process = start_process(ENTRY, end=theirs, own_session=True)
        self.channel = Channel(ours)
        self.idle_since = time.monotonic()

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process and what it has started, at once."""
        if self._process.returncode is None:  # not yet waited for, so the number is still its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.kill()

    def end(self) -> None:
        """Let an idle process end by itself."""
        with contextlib.suppress(HungUp):
            self.channel.send({"end": True})
        self.channel.close()

    def how_it_died(self) -> str:
        """Say how the process has ended; it must have hung up, or have been killed."""
        self.kill()  # what it has started must not outlive it; a process that is dead already stays as dead as it was
        self.channel.close()
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "hung up"
        if code >= 0:
            return f"ended with exit code {code}"
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        return f"was killed by {name}" + (", perhaps for want of memory" if -code == signal.SIGKILL else "")


class HandlerProcesses:
    """Runs isolated handlers, each in a process that no other uses meanwhile. Processes are kept for a while.

    Called from the threads of the worker's slots, so that there are never more processes than slots.
    """

    def __init__(
        self,
        *,
        max_payload: int,
        limits: Limits,
        interrupt_grace: timedelta,
        is_canceled: Callable[[Claim], bool],
    ) -> None:
        self._terms: Message = {"max_payload": max_payload, "max_runs": limits.runs, "max_memory": limits.memory}
        self._grace = interrupt_grace.total_seconds()
        self._is_canceled = is_canceled
        self._lock = threading.Lock()
        self._idle: list[HandlerProcess] = []
        self._busy: set[HandlerProcess] = set()
        self._ending: list[HandlerProcess] = []
        self._stopping = False
        # One thread starts them all and lives as long as the worker: processes die with the thread that started them.
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="catbird-start-process")

    def run(self, handler: Handler, claim: Claim, reporter: Reporter) -> Outcome:
        """Run a handler in another process. Raise HandlerDied, HandlerTimeout or CancelRequested if that had to end."""
        terms = handler.terms_for_another_process(claim)  # before there is a process that waits for it
        process = self._take_unless_stopping()
        if process is None:
            return Released(claim)
        try:
            process.channel.send({"claim": claim_as_json(claim), handler.what: handler.name, **terms})
            answer = self._converse(process, handler, claim, reporter)
        except HungUp:
            died = process.how_it_died()
            if self._stopping:
                return Released(claim)  # we have killed it ourselves
            raise HandlerDied(f"its process {died}") from None
        except BaseException:
            process.how_it_died()
            raise
        finally:
            with self._lock:
                self._busy.discard(process)
        self._put_back(process, is_worn_out=answer["is_worn_out"])
        return outcome_from_json(claim, answer["outcome"])

    def end_idle(self) -> None:
        """End the processes that nobody has needed for a while, and see off those that were told to end."""
        long_ago = time.monotonic() - IDLE_FOR
        with self._lock:
            idle = [process for process in self._idle if process.idle_since < long_ago]
            self._idle = [process for process in self._idle if process not in idle]
            self._ending = [process for process in self._ending if process.is_alive()]
        for process in idle:
            self._end(process)

    def stop(self) -> None:
        """Kill what still runs: it ends as released. Wait a moment for that, and end the others."""
        with self._lock:
            self._stopping = True
            idle, self._idle = self._idle, []
        for process in idle:
            self._end(process)
        deadline = time.monotonic() + LONGEST_END
        while (self._busy or any(process.is_alive() for process in self._ending)) and time.monotonic() < deadline:
            for process in self._busy.copy():
                process.kill()
            time.sleep(0.01)
        for process in self._ending:
            process.kill()
        self._starter.shutdown(wait=False)

    def _end(self, process: HandlerProcess) -> None:
        process.end()
        with self._lock:
            self._ending.append(process)

    def _take_unless_stopping(self) -> HandlerProcess | None:
        try:
            return None if self._stopping else self._take()
        except HandlerDied:
            if self._stopping:
                return None
            raise

    def _take(self) -> HandlerProcess:
        """An idle process, the one that was used last, or else a new one."""
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.is_alive():
                    self._busy.add(process)
                    return process
                process.how_it_died()
        return self._start()

    def _start(self) -> HandlerProcess:
        process = self._starter.submit(HandlerProcess).result()
        with self._lock:
            self._busy.add(process)
        try:
            process.channel.send(self._terms)
            answer = process.channel.receive(timeout=LONGEST_START) or {"broken": "it took too long to start"}
        except HungUp:
            answer = {"broken": f"it {process.how_it_died()} before it was ready"}
        if "broken" in answer:
            process.how_it_died()
            with self._lock:
                self._busy.discard(process)
            raise HandlerDied(f"its process could not start: {answer['broken']}")
        logger.info("a process for handlers has started", extra={"pid": process.pid})
        return process

    def _put_back(self, process: HandlerProcess, *, is_worn_out: bool) -> None:
        process.idle_since = time.monotonic()
        with self._lock:
            is_kept = not (is_worn_out or self._stopping)
            if is_kept:
                self._idle.append(process)
        if not is_kept:
            self._end(process)

    def _converse(self, process: HandlerProcess, handler: Handler, claim: Claim, reporter: Reporter) -> Message:
        """Take the words of a handler until it has ended; return its answer."""
        timeout = handler.options.timeout
        was_told = False
        # The process interrupts the handler by itself when its time is over; we kill what that does not stop.
        kill_at = time.monotonic() + timeout.total_seconds() + self._grace if timeout else float("inf")
        while True:
            message = process.channel.receive(timeout=LOOK_EVERY)
            if message is not None and "outcome" in message:
                return message
            if message is not None:
                _pass_on(message, reporter)
            elif not process.is_alive():
                raise HungUp  # and something that it has started holds the line
            if not was_told and self._is_canceled(claim):
                was_told = True
                process.channel.send({"cancel": True})
                kill_at = min(kill_at, time.monotonic() + self._grace)
            if time.monotonic() >= kill_at:
                raise CancelRequested if was_told else _killed_for(timeout)


def _pass_on(message: Message, reporter: Reporter) -> None:
    if "progress" in message:
        reporter.progress(*message["progress"])
    elif "log" in message:
        reporter.log(*message["log"])


def _killed_for(timeout: timedelta | None) -> HandlerTimeout:
    seconds = timeout.total_seconds() if timeout else 0
    return HandlerTimeout(f"took longer than {seconds:g} s, and its process was killed")
