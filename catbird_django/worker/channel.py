"""A line between two processes that carries JSON: each message is its length in four bytes, then its text."""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
from typing import Any

Message = dict[str, Any]

HEAD = struct.Struct(">I")
CHUNK = 64 * 1024


class HungUp(Exception):
    """The other side is gone."""


class Channel:
    """One end of the line. Any thread may send; one receives."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._received = bytearray()
        self._sending = threading.Lock()
        self._readable = select.poll()
        self._readable.register(line, select.POLLIN)

    def send(self, message: Message) -> None:
        """Send a message; raise HungUp if nobody can take it.

        By one call of the system's: an exception that is raised in this thread from outside finds it sent, or unsent.
        """
        text = json.dumps(message).encode()
        with self._sending:
            try:
                self._line.sendall(HEAD.pack(len(text)) + text)
            except OSError as error:
                raise HungUp from error

    def receive(self, *, timeout: float | None = None) -> Message | None:
        """Wait for the next message, so many seconds at most; None if there was none. Raise HungUp at the end."""
        while (message := self._take()) is None:
            if not self._readable.poll(None if timeout is None else timeout * 1000):
                return None
            try:
                more = self._line.recv(CHUNK)
            except OSError as error:
                raise HungUp from error
            if not more:
                raise HungUp
            self._received += more
        return message

    def close(self) -> None:
        self._line.close()

    def _take(self) -> Message | None:
        """The first message of what was received, if all of it is there."""
        if len(self._received) < HEAD.size:
            return None
        end = HEAD.size + HEAD.unpack_from(self._received)[0]
        if len(self._received) < end:
            return None
        message: Message = json.loads(self._received[HEAD.size : end])
        del self._received[:end]
        return message
