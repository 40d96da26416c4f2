"""`python3 bootstrap.py bench tasks`, or `python -m benchmarks tasks` in the environment; others alike."""

from __future__ import annotations

import sys

from benchmarks.flows import command as flows
from benchmarks.tasks import command as tasks
from benchmarks.tasks import profile

BENCHMARKS = {"tasks": tasks.main, "flows": flows.main, "profile": profile.main}


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in BENCHMARKS:
        print(f"bench: say which benchmark to run: {', '.join(BENCHMARKS)} (each has --help)", file=sys.stderr)
        return 2
    name, *rest = arguments
    return BENCHMARKS[name](rest)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\nStopped.")
        sys.exit(130)
