"""Named places where a test may kill, stop, delay or cut off this process. They do nothing outside of tests.

    CATBIRD_TESTING=1 CATBIRD_FAILPOINT=after-claim:kill,before-settle:sleep-2:3

kills the process at the first claim, and sleeps two seconds at the third settlement. Without a number a point acts each
time it is reached. Both variables are needed, and are read once, on import: otherwise a point is a call that returns.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from django.db import OperationalError, connections, transaction

if TYPE_CHECKING:
    from collections.abc import Iterator

POINTS = {
    "after-claim": "runs are claimed, and not yet handed over",
    "before-handler": "the arguments are decoded, the handler is called next",
    "after-handler": "the handler has returned, its output is not yet encoded",
    "before-settle": "outcomes are about to be settled",
    "before-settle-commit": "the settlement was accepted, and not yet committed",
    "after-settle": "the settlement is committed, the worker still holds the claims",
    "in-sweep": "the upkeep is done, and not yet committed",
    "before-renew": "leases are about to be renewed",
    "listener-before-relisten": "the listener is about to connect",
    "in-cancel": "a run is canceled, and not yet committed",
}
"""Every point, and what has happened when it is reached."""

SPECIFICATION = re.compile(
    r"(?P<point>[a-z-]+):(?P<action>kill|stop|raise|drop-connection|sleep-(?P<seconds>[\d.]+))(:(?P<nth>\d+))?"
)


class FailpointReached(OperationalError):
    """What the action `raise` raises: trouble with the database, as loops must survive it."""


class Failpoints:
    """The points that are armed, and how often each was reached."""

    def __init__(self, specifications: str) -> None:
        self._armed = [_parsed(text.strip()) for text in specifications.split(",")]
        self._reached: Counter[str] = Counter()
        self._turn = threading.Lock()

    def reach(self, point: str) -> None:
        """Do what is asked for at this point, if anything is."""
        with self._turn:
            self._reached[point] += 1
            count = self._reached[point]
        for match in self._armed:
            if match["point"] == point and match["nth"] in (None, str(count)):
                # To the file itself: after the next line there may be nobody to flush a buffer.
                os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"failpoint {match[0]}\n".encode())
                _act(match)

    def before_commit(self, point: str, using: str) -> AbstractContextManager[None]:
        """A transaction around the block, with the point at its end; no transaction where the point is not armed."""
        if not any(match["point"] == point for match in self._armed):
            return nullcontext()
        return self._transaction(point, using)

    @contextmanager
    def _transaction(self, point: str, using: str) -> Iterator[None]:
        with transaction.atomic(using=using):
            yield
            self.reach(point)


def _parsed(text: str) -> re.Match[str]:
    match = SPECIFICATION.fullmatch(text)
    if match is None or match["point"] not in POINTS:
        raise ValueError(f"CATBIRD_FAILPOINT: {text!r} is not point:action[:nth] (points: {', '.join(POINTS)})")
    return match


def _act(match: re.Match[str]) -> None:
    match match["action"]:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "raise":
            raise FailpointReached(f"failpoint {match['point']}")
        case "drop-connection":
            _drop_connections()
        case _:
            time.sleep(float(match["seconds"]))


def _drop_connections() -> None:
    """Cut this thread's connections below the driver, which learns of it as of a cable that was pulled."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and not connection.connection.closed:
            with socket.socket(fileno=os.dup(connection.connection.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)


_OFF: AbstractContextManager[None] = nullcontext()


def _pass_by(_point: str) -> None:
    """What `reach` is outside of tests."""


def _no_transaction(_point: str, _using: str) -> AbstractContextManager[None]:
    """What `before_commit` is outside of tests."""
    return _OFF


Reach = Callable[[str], None]
BeforeCommit = Callable[[str, str], AbstractContextManager[None]]


def functions_for(environment: Mapping[str, str]) -> tuple[Reach, BeforeCommit]:
    """The two functions that the engine calls, as this environment wants them."""
    if environment.get("CATBIRD_TESTING") != "1" or not environment.get("CATBIRD_FAILPOINT"):
        return _pass_by, _no_transaction
    armed = Failpoints(environment["CATBIRD_FAILPOINT"])
    return armed.reach, armed.before_commit


# Read on import, unlike settings: chosen once, a point costs a call and no question.
reach, before_commit = functions_for(os.environ)
