"""Binds a port for the demo: the one asked for, or the first that is free."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"
FIRST_PORT = 8000
PORTS_TO_TRY = 100


class PortError(Exception):
    """No socket could be bound; the message is one line that says what to do."""


def bind(port: int | None) -> socket.socket:
    """Give a socket bound to the port, or to the first free one from 8000 on when none is asked for."""
    if port is not None:
        return bind_exactly(port)
    for candidate in range(FIRST_PORT, FIRST_PORT + PORTS_TO_TRY):
        try:
            return bind_exactly(candidate)
        except PortError:
            continue
    raise PortError(f"ports {FIRST_PORT} to {FIRST_PORT + PORTS_TO_TRY - 1} are all taken: name a free one with --port")


def bind_exactly(port: int) -> socket.socket:
    listening = socket.socket()
    # A port that was used a moment ago counts as free; one that is listened on does not.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or error
        raise PortError(
            f"port {port} cannot be used ({reason}): name another with --port, "
            "or leave --port out to take the next free one"
        ) from error
    return listening
