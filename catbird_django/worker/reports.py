"""What handlers say about their runs, on its way to the database.

Words are kept for a moment and sent together: of a run's progress only the newest, of its log every line. Nobody says
anything, nothing is sent. What a handler has said is stored before its run goes back to the queue, because from then on
it may be another's.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import NamedTuple, TypeVar

from django.db import connections

from catbird_django.engine.call import DATABASE_TROUBLE, blames_data
from catbird_django.engine.reports import MAX_LINES, LogLine
from catbird_django.engine.steps import AnyDelivery, Claim
from catbird_django.statuses import ReportVerdict
from catbird_django.worker.backoff import Backoff
from catbird_django.worker.kinds import Report, kind_of, sorted_by_kind
from catbird_django.worker.patience import Calling

logger = logging.getLogger("catbird.worker")

Word = TypeVar("Word")

PAUSE = 0.5  # seconds between the first word and its sending
PAUSE_FOR_LOCKS = 0.1  # at the end, while others have runs locked of which something is to be said
MAX_BATCH = 1000
MAX_CHARACTERS = 8 * 1024 * 1024
"""How much of logs is kept while the database does not take it, at most; what is more is dropped."""


class SaidLine(NamedTuple):
    """A line of a handler, and when it was said."""

    delivery: AnyDelivery
    attempt: int
    level: str
    message: str
    said_at: float


class Reports:
    """Collects the words of all handlers and sends them, on a thread and a connection of its own."""

    def __init__(self, *, using: str, notify: bool, calling: Calling = nullcontext) -> None:
        self._calling = calling
        self._using = using
        self._notify = notify
        self._progress: dict[AnyDelivery, str] = {}
        self._lines: deque[SaidLine] = deque()
        self._characters = 0
        self._dropped = 0
        self._adding = threading.Lock()
        self._sending = threading.Lock()  # taken before the other, never after it
        self._said = threading.Event()
        self._hurry = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="catbird-reports", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self, *, timeout: float) -> bool:
        """Send what is left, for at most `timeout` seconds; say whether all of it was."""
        self._stopping = True
        self._hurry.set()
        self._said.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def add_progress(self, delivery: AnyDelivery, progress: str) -> None:
        with self._adding:
            self._progress[delivery] = progress
        self._said.set()

    def add_line(self, line: SaidLine) -> None:
        with self._adding:
            if self._characters > MAX_CHARACTERS:
                self._dropped += 1
            else:
                self._lines.append(line)
                self._characters += len(line.message)
            if len(self._lines) >= MAX_BATCH:
                self._hurry.set()
        self._said.set()

    def send_words_of(self, deliveries: Sequence[AnyDelivery]) -> None:
        """Send what is kept if any of it is about these deliveries. Raises what the database raises."""
        if not self._progress and not self._lines and not self._sending.locked():
            return
        with self._sending:  # what is being sent just now is sent then
            if self._has_words_of(set(deliveries)):
                self._send()

    def _has_words_of(self, deliveries: set[AnyDelivery]) -> bool:
        with self._adding:
            return not deliveries.isdisjoint(self._progress) or any(line.delivery in deliveries for line in self._lines)

    def _run(self) -> None:
        with self._calling():
            self._loop()

    def _loop(self) -> None:
        backoff = Backoff()
        while not (self._stopping and not self._progress and not self._lines):
            self._said.wait()
            self._hurry.wait(PAUSE)
            self._said.clear()
            if not self._stopping:
                self._hurry.clear()
            try:
                with self._sending:
                    self._send()
                backoff.reset()
                if self._stopping and self._progress:
                    time.sleep(PAUSE_FOR_LOCKS)
            except DATABASE_TROUBLE as error:
                pause = backoff.next_pause()
                logger.warning("cannot store reports, trying again", extra={"error": str(error), "retry_in": pause})
                connections.close_all()
                self._said.set()
                time.sleep(pause)
        connections.close_all()

    def _send(self) -> None:
        """Send all that has been said so far. What the database could not take is kept."""
        with self._adding:
            progress, self._progress = self._progress, {}
            dropped, self._dropped = self._dropped, 0
            waiting = len(self._lines)
        if dropped:
            logger.warning("log lines were dropped, the database is too slow for them", extra={"dropped": dropped})
        try:
            locked = self._send_progress(progress)
        except DATABASE_TROUBLE:
            self._keep(progress)
            raise
        self._keep(locked)
        while waiting > 0:
            waiting -= self._send_lines(min(waiting, MAX_BATCH))

    def _send_progress(self, progress: dict[AnyDelivery, str]) -> dict[AnyDelivery, str]:
        """Send progress; return what is to be said again, because others had those runs locked."""
        locked: dict[AnyDelivery, str] = {}

        def send(report: Report, words: Sequence[tuple[AnyDelivery, str]]) -> None:
            verdicts = report(words, notify=self._notify, using=self._using)
            if ReportVerdict.LOCKED in verdicts:
                answered = zip(words, verdicts, strict=True)
                locked.update(word for word, verdict in answered if verdict is ReportVerdict.LOCKED)

        for kind, deliveries in sorted_by_kind(progress):
            _send_all([(delivery, progress[delivery]) for delivery in deliveries], partial(send, kind.report))
        return locked

    def _keep(self, progress: dict[AnyDelivery, str]) -> None:
        """Keep words that could not be stored, for the next time."""
        if progress:
            with self._adding:
                self._progress = {**progress, **self._progress}  # newer ones win
            self._said.set()

    def _send_lines(self, count: int) -> int:
        """Send the oldest lines; they are forgotten only when the database has them."""
        with self._adding:
            left = [self._lines[place] for place in range(count)]
        now = time.monotonic()
        while left:
            kind = kind_of(left[0].delivery)
            sent = [line for line in left if kind_of(line.delivery) is kind]  # mostly all of them
            aged = [LogLine(*line[:4], timedelta(seconds=now - line.said_at)) for line in sent]
            _send_all(aged, partial(kind.log, using=self._using))
            others = [line for line in left if kind_of(line.delivery) is not kind]
            self._replace_oldest(left, others)
            left = others
        return count

    def _replace_oldest(self, oldest: Sequence[SaidLine], kept: Sequence[SaidLine]) -> None:
        with self._adding:
            for _ in oldest:
                self._characters -= len(self._lines.popleft().message)
            self._lines.extendleft(reversed(kept))
            self._characters += sum(len(line.message) for line in kept)


def _send_all(batch: Sequence[Word], send: Callable[[Sequence[Word]], object]) -> None:
    """Send words in one call; where the database refuses some of them for what they are, one by one without those."""
    try:
        send(batch)
    except DATABASE_TROUBLE as error:
        if not blames_data(error):
            raise
        if len(batch) == 1:
            logger.error("a report cannot be stored", exc_info=error)
            return
        for word in batch:
            _send_all([word], send)


class ClaimReporter:
    """Takes the words of one handler."""

    def __init__(self, claim: Claim, *, reports: Reports, is_canceled: Callable[[Claim], bool]) -> None:
        self._claim = claim
        self._reports = reports
        self._is_canceled = is_canceled
        self._line_count = 0

    def is_canceled(self) -> bool:
        return self._is_canceled(self._claim)

    def progress(self, done: float, total: float | None, message: str) -> None:
        progress = {"done": done, "total": total, "message": message}
        self._reports.add_progress(self._claim.delivery, json.dumps(progress))

    def log(self, level: str, message: str) -> None:
        # The database caps the log of a run; a handler that never stops talking must not fill the memory before that.
        self._line_count += 1
        if self._line_count <= MAX_LINES:
            claim = self._claim
            self._reports.add_line(SaidLine(claim.delivery, claim.attempt, level, message, time.monotonic()))

    def heartbeat(self) -> None:
        """Nothing to send: the worker renews the leases of all that it holds."""
