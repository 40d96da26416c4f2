"""JSON given to a command: as an argument, from a file, or from standard input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

USAGE = 2  # exit code, as argparse has it


def add_json_arguments(parser: CommandParser, name: str, example: str) -> None:
    """Let `--NAME JSON` or `--NAME-file FILE` be given."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument(f"--{name}", metavar="JSON", help=f"the {name}, as in {example!r} (default: null)")
    source.add_argument(f"--{name}-file", metavar="FILE", help=f"read the {name}, as JSON, from this file; - for stdin")


def read_json(options: dict[str, Any], name: str) -> Any:
    """The value that was given; null for none. Raise CommandError for what is not JSON."""
    text, source = options[name], f"--{name}"
    if options[f"{name}_file"] is not None:
        text, source = _read_file(options[f"{name}_file"], name), options[f"{name}_file"]
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{source}: not JSON: {error}", returncode=USAGE) from error


def _read_file(path: str, name: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--{name}-file: {error}", returncode=USAGE) from error
