"""A TCP proxy in front of a PostgreSQL server, for tests of bad networks: it can fall silent, cut, and slow down.

with Proxy(server_address()) as proxy:
    proxy.freeze()      # half-open: sockets stay, and are even acknowledged, but nothing is forwarded
    proxy.thaw()        # goes on with what came meanwhile
    proxy.strand()      # half-open for good, those that there are; new ones work
    proxy.cut()         # RST on every connection; new ones are welcome
    proxy.delay = 0.3   # seconds, added to every chunk in both directions
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from django.db import connection

Address = tuple[str, int] | str
"""Host and port, or the path of a unix socket."""

CHUNK = 65536
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER, no time to linger


class Proxy:
    """Forwards 127.0.0.1:`port` to a server, on two threads per connection."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self._door = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._door.getsockname()[1]
        self.delay = 0.0
        self._flowing = threading.Event()
        self._flowing.set()
        self._stranded: list[threading.Event] = []
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._lines: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._door.close()
        self.cut()
        for flowing in (self._flowing, *self._stranded):
            flowing.set()  # whoever waits for it finds a closed line

    @property
    def connection_count(self) -> int:
        """How many connections go through it now."""
        return len(self._lines) // 2

    def freeze(self) -> None:
        """Forward nothing any more, on old connections and new ones, and close none."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Forward again, beginning with what came meanwhile."""
        self._flowing.set()

    def strand(self) -> None:
        """Forward nothing any more on the connections there are, for good; new ones work."""
        stranded, self._flowing = self._flowing, threading.Event()
        self._flowing.set()
        stranded.clear()
        self._stranded.append(stranded)

    def cut(self) -> None:
        """Reset every connection."""
        with self._lock:
            lines, self._lines = self._lines, set()
        for line in lines:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            _shut(line)
            line.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=[client], name="proxy-line", daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        flowing = self._flowing
        flowing.wait()
        try:
            server = _connected(self._target)
        except OSError:  # the server is down: so are we, for this client
            client.close()
            return
        with self._lock:
            self._lines |= {client, server}
        threading.Thread(target=self._pump, args=[server, client, flowing], name="proxy-back", daemon=True).start()
        self._pump(client, server, flowing)

    def _pump(self, source: socket.socket, sink: socket.socket, flowing: threading.Event) -> None:
        with suppress(OSError):  # cut, from here or from there
            while data := source.recv(CHUNK):
                flowing.wait()
                if self.delay:
                    self._closed.wait(self.delay)
                sink.sendall(data)
        flowing.wait()  # a silent line does not even tell that its other end is gone
        self._hang_up(source, sink)

    def _hang_up(self, *lines: socket.socket) -> None:
        with self._lock:
            self._lines -= set(lines)
        for line in lines:
            _shut(line)


def _connected(target: Address) -> socket.socket:
    if isinstance(target, tuple):
        return socket.create_connection(target)
    line = socket.socket(socket.AF_UNIX)
    line.connect(target)
    return line


def _shut(line: socket.socket) -> None:
    with suppress(OSError):  # it is already
        line.shutdown(socket.SHUT_RDWR)


def server_address(parameters: Mapping[str, Any] | None = None) -> Address:
    """Where the server of these connection parameters, or of the test database, listens."""
    given = connection.get_connection_params() if parameters is None else parameters
    host, port = str(given.get("host") or "/var/run/postgresql"), int(given.get("port") or 5432)
    return str(Path(host) / f".s.PGSQL.{port}") if host.startswith("/") else (host, port)
