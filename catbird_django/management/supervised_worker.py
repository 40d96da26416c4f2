"""A worker process under a supervisor: takes its arguments from it, and stops when it is gone."""

from __future__ import annotations

import os
import signal
import socket
import sys

import django
from django.core.management import CommandError, call_command

from catbird_django.worker.channel import Channel, HungUp
from catbird_django.worker.fresh_process import die_with_parent


def main(file_descriptor: int, parent: int) -> None:
    """Run `catbird_worker` as the supervisor at the other end of the line says."""
    die_with_parent(parent, signal.SIGTERM)
    os.set_inheritable(file_descriptor, False)
    line = Channel(socket.socket(fileno=file_descriptor))
    try:
        message = line.receive() or {}
    except HungUp:
        sys.exit(0)
    django.setup()
    try:
        call_command("catbird_worker", *message["arguments"], supervisor=line)
    except CommandError as error:
        sys.exit(f"CommandError: {error}")
