"""Uses the server of a home until the end of input, and prints where it is: `python -m project.embedded .catbird`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from project.embedded.errors import EmbeddedPostgresError
from project.embedded.launcher import EmbeddedServer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m project.embedded", description=__doc__)
    parser.add_argument("home", type=Path)
    try:
        address = EmbeddedServer(parser.parse_args().home).ensure_running()
    except EmbeddedPostgresError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"psql -h '{address.host}' -p {address.port} -U {address.user} postgres\n")
    sys.stdout.flush()
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
