"""Serves the host project on a socket that is bound already: `python -m project.demo.web DESCRIPTOR`.

The demo binds the socket itself, so that a taken port is noticed before anything is started.
"""

from __future__ import annotations

import socket
import sys

import uvicorn

# Without a limit, one open event stream would keep the server from ever stopping.
SECONDS_TO_FINISH = 2


def main() -> None:
    listening = socket.socket(fileno=int(sys.argv[1]))
    config = uvicorn.Config(
        "project.asgi:application",
        lifespan="off",
        log_level="warning",
        timeout_graceful_shutdown=SECONDS_TO_FINISH,
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
